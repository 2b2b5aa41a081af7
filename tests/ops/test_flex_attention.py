"""flex_attention with soft caps and sinks gives what the reference gives, in blocks that leave nothing out."""

from unittest.mock import patch

import pytest
import torch
from torch._dynamo.exc import TorchDynamoException
from torch._functorch.aot_autograd import make_boxed_func
from torch._inductor import config
from torch._inductor.compile_fx import compile_fx, compile_fx_inner
from torch._inductor.exc import InductorError
from torch._inductor.graph import GraphLowering
from torch.nn.attention.flex_attention import create_block_mask
from torch.nn.attention.flex_attention import flex_attention as compute

from kvbench.ops import attention, flex_attention
from kvbench.ops.attention import dense_attention, sliding_attention
from kvbench.ops.flex_attention import BLOCK, causal_blocks, flexible_attention
from kvbench.ops.softmax import Softmax
from tests.support.gpu_code import Made

SIZES = [(200, 200), (70, 300), (5, 129), (256, 256)]  # queries, keys


def tensors(q, length, dtype=torch.float32):
    generator = torch.Generator().manual_seed(q)
    sizes = ((6, q), (2, length), (2, length))
    return [torch.randn(1, heads, n, 16, generator=generator).to(dtype) for heads, n in sizes]


@pytest.mark.parametrize("window", [None, 1, 60, 150])
@pytest.mark.parametrize("q, length", SIZES)
def test_blocks_are_those_of_the_mask_itself(q, length, window):
    made = causal_blocks(q, length, window, torch.device("cpu"))
    expected = create_block_mask(made.mask_mod, None, None, q, length, device="cpu", BLOCK_SIZE=BLOCK)
    assert made.shape == expected.shape and made.to_dense().equal(expected.to_dense())
    assert made.full_kv_num_blocks.equal(expected.full_kv_num_blocks)
    rows = torch.arange(q)[:, None] + length - q
    seen = (torch.arange(length) <= rows) & (torch.arange(length) > rows - (window or length))
    assert made.mask_mod(0, 0, torch.arange(q)[:, None], torch.arange(length)).equal(seen)


@pytest.mark.filterwarnings("ignore")  # it is not compiled here, and torch says so
@pytest.mark.heavy
@pytest.mark.parametrize("bent", [{"softcap": 3.0}, {"sinks": True}, {"softcap": 2.0, "sinks": True}], ids=str)
@pytest.mark.parametrize("window", [None, 60])
def test_it_attends_as_the_reference(bent, window):
    sinks = torch.linspace(-2, 3, 6) if "sinks" in bent else None
    scaling = Softmax(0.5, bent.get("softcap"), sinks)
    for q, length in SIZES[:2]:
        given = tensors(q, length)
        expected = (
            dense_attention(*given, scaling) if window is None else sliding_attention(*given, scaling, window=window)
        )
        torch.testing.assert_close(flexible_attention(*given, scaling, window), expected, atol=2e-6, rtol=2e-5)


def test_prompts_of_a_gpu_go_through_it_and_single_tokens_do_not(monkeypatch):
    taken = []
    monkeypatch.setattr(attention, "flexible", lambda query: query.shape[2] > 1)
    monkeypatch.setattr(attention, "flexible_attention", lambda *args: taken.append(args[4:]) or args[0])
    scaling = Softmax(0.5, 3.0)
    dense_attention(*tensors(9, 30), scaling)
    sliding_attention(*tensors(9, 30), scaling, 7)
    dense_attention(*tensors(1, 30), scaling)
    sliding_attention(*tensors(1, 30), scaling, 7)
    assert taken == [(), (7,)]


def test_where_it_does_not_compile_the_reference_computes_from_then_on(monkeypatch):
    def compute(*args, **options):
        raise TorchDynamoException("no compiler")

    monkeypatch.setattr(flex_attention, "attend", lambda device: compute)
    monkeypatch.setattr(flex_attention, "failures", [])
    monkeypatch.setattr(attention, "flexible", lambda query: not flex_attention.failures)
    given, scaling = tensors(9, 30), Softmax(0.5, 3.0)
    with pytest.warns(UserWarning, match="flex_attention does not compile here, a slower reference .*: no compiler"):
        out = dense_attention(*given, scaling)
    assert out.equal(dense_attention(*given, scaling)) and len(flex_attention.failures) == 1


@pytest.mark.heavy
@pytest.mark.filterwarnings("ignore")  # of torch's own
@pytest.mark.parametrize("bent", [{"softcap": 3.0}, {}], ids=str)
def test_torch_can_compile_it(bent, monkeypatch):
    """Up to the code, which needs a compiler, and without the log-sum-exps of sinks, which only GPUs compute."""
    lowered = []

    def lower(graph, inputs, **options):
        with patch.object(GraphLowering, "codegen", side_effect=Made), config.patch(force_disable_caches=True):
            try:
                compile_fx_inner(graph, inputs, **options)
            except InductorError as error:
                if not isinstance(error.inner_exception, Made):
                    raise
        lowered.append(len(inputs))
        return make_boxed_func(graph)

    compiled = torch.compile(
        compute, dynamic=True, backend=lambda graph, inputs: compile_fx(graph, inputs, inner_compile=lower)
    )
    monkeypatch.setattr(flex_attention, "failures", [])
    monkeypatch.setattr(
        flex_attention, "attend", lambda device: lambda *args, return_lse, **options: (compiled(*args, **options), None)
    )
    with torch.inference_mode():
        for q, length in SIZES[:2]:
            given = tensors(q, length)
            out = flexible_attention(*given, Softmax(0.5, **bent), 60)
            expected = sliding_attention(*given, Softmax(0.5, **bent), 60)
            assert flex_attention.failures == []
            torch.testing.assert_close(out, expected, atol=2e-6, rtol=2e-5)
    assert lowered
