"""Coding decoded vectors in Triton: the reference's decisions, two launches, no spilled registers."""

import math

import pytest
import torch

from kvbench.methods.spindlekv.ops.codebook_append import codebook_append
from kvbench.methods.spindlekv.ops.codebook_layout import KEYS
from kvbench.ops.operator import LAUNCHES, use_kernels
from tests.support.codebook_caches import random_cache
from tests.support.codebook_twins import append_agrees as agrees
from tests.support.kernels import ARCHITECTURES, compiled, interpreted, record_launches, resources
from tests.support.needs import need, packages

pytestmark = pytest.mark.kernels
need("triton", packages("triton", "triton"))

from kvbench.methods.spindlekv.ops.kernels import codebook_append as kernels  # noqa: E402


@interpreted
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_each_stream_finds_the_nearest_entry_of_its_book_or_adds_one(dtype):
    agrees(random_cache([9, 0, 5], [40, 0, 3], [1, 1, 1], 2, 8, dtype))


@interpreted
def test_streams_of_one_book_find_what_the_ones_before_them_added():
    agrees(random_cache([9, 4, 5], [17], [1, 1, 1], 2, 8))


@interpreted
def test_query_heads_with_their_own_books_code_the_vector_of_their_kv_head():
    agrees(random_cache([9, 4, 5, 2], [7, 6, 5, 4], [1, 1], 1, 8), steps=2)


@interpreted
def test_whole_vectors_are_entries_where_no_magnitudes_are_kept():
    agrees(random_cache([9, 4], [7, 6], [1, 1], 1, 8, reconstruct=False))


@interpreted
def test_books_of_several_splits_are_searched_and_references_have_their_width():
    agrees(random_cache([9, 4], [300, 70000], [1, 1], 1, 8), steps=2)


@interpreted
def test_theta_of_one_finds_nothing():
    cache = random_cache([9], [7], [1], 1, 8, bound=math.inf)
    with use_kernels("triton"):
        for _ in range(3):
            cache.update(torch.ones(1, 1, 1, 8), torch.ones(1, 1, 1, 8))
    assert cache.v.sizes.tolist() == [10]


@interpreted
def test_a_call_launches_what_the_operator_says(monkeypatch):
    launched = record_launches(monkeypatch, kernels, "nearest_entry_kernel", "settle_entry_kernel")
    with use_kernels("triton"):
        random_cache([4], [2], [1], 1, 8).update(torch.ones(1, 1, 1, 8), torch.ones(1, 1, 1, 8))
    assert len(launched) == LAUNCHES[codebook_append.__name__]


SIGNATURE = {
    **dict.fromkeys(["sizes", "layout", "order"], "*i64"),
    **dict.fromkeys(["turns", "best"], "*fp32"),
    **dict.fromkeys(["prompt", "splits", "split_entries"], "i32"),
    "decoded": "*i32",
    "references": "*u8",
    "where": "*i32",
    "bound": "fp32",
}


@compiled
@pytest.mark.parametrize("sm", ARCHITECTURES)
@pytest.mark.parametrize("head_dim, dtype, shared", [(64, "bf16", 1), (128, "bf16", 8), (256, "fp32", 32)])
def test_the_kernels_spill_no_registers(head_dim, dtype, shared, sm):
    signature = SIGNATURE | dict.fromkeys(["entries", "magnitudes", "vectors"], f"*{dtype}")
    constants = {"SIDE": KEYS, "FIELDS": kernels.FIELDS, "COPIES": 1, "SHARED": shared, "D": head_dim}
    constants |= {"PAIRS": head_dim // 2, "HALF": head_dim // 2}
    nearest = resources(kernels.nearest_entry_kernel, signature, constants | {"BLOCK_N": kernels.BLOCK_N}, sm)
    settle = constants | {"ROWS": shared, "MAGNITUDES": True, "COUNTS": False, "SPLITS": kernels.MOST_SPLITS}
    assert nearest["spills"] == 0, nearest
    assert resources(kernels.settle_entry_kernel, signature, settle, sm)["spills"] == 0
