"""What torch.compile believes of an operator's results is what the operator returns, in all calls that methods make."""

import pytest
import torch
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.library import opcheck
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

from kvbench.evaluation.decode import batched, read
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.ops.operator import LAUNCHES, use_kernels
from kvbench.ops.quantise import CHANNELS, TOKENS, Quantiser
from kvbench.prefill import FullPrefill
from tests.support.every_method import HEAD_DIM, LAYERS, setting
from tests.support.tiny import prompt, tiny_model

pytestmark = pytest.mark.heavy

# Presets that between them call every operator.
PRESETS = ("full", "adakv", "h2o", "kivi", "spindle", "minicache", "spindlekv_paper", "ggml_q5_1", "nvfp4")
N = 70
# Of what opcheck tries: which arguments are written, and the results' metadata where sizes are known and where not.
CHECKS = ("test_schema", "test_faketensor")


class Called(TorchDispatchMode):
    """The calls of kvbench's operators, once for each set of shapes, with arguments as they were."""

    def __init__(self):
        super().__init__()
        self.calls = {}

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        kwargs = kwargs or {}
        if func.namespace == "kvbench":
            key = func, str(tree_map_only(torch.Tensor, described, (args, kwargs)))
            self.calls.setdefault(key, tree_map_only(torch.Tensor, torch.clone, (args, kwargs)))
        return func(*args, **kwargs)


def described(tensor):
    return tuple(tensor.shape), tensor.stride(), tensor.dtype, tensor.device


def calls_of(preset, dtype):
    model, method = tiny_model(num_layers=LAYERS, head_dim=HEAD_DIM).to(dtype), setting(preset).method
    with torch.inference_mode(), Called() as called:
        one = SharedPass(model, prompt(N), FullPrefill(), method.needs)
        rows = [one.compress(method, N // 2) for _ in range(2)]
        cache = batched([row.caches for row in rows])
        for token in range(3):
            read(model, cache, torch.tensor([token]))
        rows = torch.randn(2, 64, HEAD_DIM).to(dtype)
        for quantiser in (Quantiser(2, 32, TOKENS), Quantiser(4, 16, CHANNELS)):
            quantiser.restore(*quantiser(rows))
    return called.calls


@pytest.fixture(scope="module")
def calls():
    """Of a batch of two rows of each preset: compression and three decoded tokens; then rows quantised and restored."""
    with use_kernels("torch"):
        return {dtype: [calls_of(preset, dtype) for preset in PRESETS] for dtype in (torch.float32, torch.bfloat16)}


def test_every_operator_was_called(calls):
    made = {name for name in LAUNCHES if not name.startswith("_test")}
    called = {func._opname for of in calls.values() for each in of for func, _ in each}
    assert called == made


@pytest.mark.parametrize("kernels", ["torch", "auto"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_its_results_have_the_fakes_shapes_strides_and_dtypes(calls, dtype, kernels):
    with use_kernels(kernels):
        for each in calls[dtype]:
            for (func, _), (args, kwargs) in each.items():
                real = func(*tree_map_only(torch.Tensor, torch.clone, args), **kwargs)
                with FakeTensorMode() as mode:
                    fake = func(*tree_map_only(torch.Tensor, mode.from_tensor, args), **kwargs)
                found, expected = ([described(x) for x in tree_leaves(out) if x is not None] for out in (fake, real))
                assert found == expected, func


def test_torch_finds_no_fault_in_schemas_and_fakes(calls):
    with use_kernels("torch"):
        for each in calls[torch.float32]:
            for (func, _), (args, kwargs) in each.items():
                opcheck(func, args, kwargs, test_utils=CHECKS)
