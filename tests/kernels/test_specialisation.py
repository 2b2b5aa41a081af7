"""While a cache decodes, nothing is compiled anew: neither lengths nor addresses are part of a kernel's code."""

import pytest
import torch
from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_map

from kvbench.evaluation.decode import batched
from kvbench.models.cache_argument import as_argument
from kvbench.ops.operator import use_kernels
from kvbench.ops.signature import Signature
from tests.support.every_method import N, model, pass_of, setting
from tests.support.kernel_calls import kernel
from tests.support.kernels import compiled
from tests.support.needs import need, packages

pytestmark = [pytest.mark.kernels, compiled]
need("triton", packages("triton", "triton"))

from tests.support.fake_triton import FakeTriton  # noqa: E402

TOKENS = 200
# Settings of one batch -> kernels that decode it. Most presets share these caches.
BATCHES = {
    ("snapkv", "full"): {"packed_attention.split_kernel", "packed_append.append_kernel", "combine.combine_kernel"},
    ("adakv",): {"packed_attention.split_kernel", "packed_append.append_kernel", "combine.combine_kernel"},
    ("kivi",): {"quantised_attention.split_kernel", "quantise.quantise_kernel", "combine.combine_kernel"},
    ("kivi_k4v2", "kivi"): {
        "quantised_attention.split_kernel",
        "ring_append.ring_append_kernel",
        "quantise.quantise_kernel",
        "combine.combine_kernel",
    },
    ("spindle",): {
        "codebook_attention.codebook_split_kernel",
        "codebook_append.nearest_entry_kernel",
        "codebook_append.settle_entry_kernel",
        "combine.combine_kernel",
    },
}


class Launching(TorchDispatchMode):
    """Each operator of kvbench is computed by its reference, and its kernel launched on tensors without memory."""

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        if func.namespace == "kvbench":
            name = func._schema.name.partition("::")[2]
            given = tree_map(lambda x: x.to("meta") if isinstance(x, Tensor) else x, args)
            launched = kernel(name)
            launched(*Signature(launched).grouped(given))
        with use_kernels("torch"):
            return func(*args, **(kwargs or {}))


@pytest.mark.parametrize("names", BATCHES, ids="+".join)
def test_nothing_is_compiled_after_the_first_tokens(names):
    caches = []
    for name in names:
        one = setting(name)
        passed, budget = pass_of(one, N)
        caches.append(passed.compress(one.method, budget).caches)
    cache = batched(caches)
    new: dict[int, list] = {}
    with torch.inference_mode(), FakeTriton() as gpu, Launching():
        for token in range(TOKENS):
            before = len(gpu.compilations)
            ids = torch.full((len(names), 1), token % 90 + 3)
            model()(input_ids=ids, **as_argument(model(), cache), use_cache=True)
            new[token] = [one.name for one in gpu.compilations[before:]]
    assert {launch.kernel for launch in gpu.launches} >= BATCHES[names]
    late = {token: names for token, names in new.items() if names and token > 0}
    assert {name for names in late.values() for name in names} <= {"quantise.quantise_kernel"}, late
    assert sum(map(len, late.values())) <= 2 * len(names), late  # keys and values, when a block is first quantised
