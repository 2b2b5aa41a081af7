"""Attention over a codebook cache in Triton: the reference's numbers, two launches, no spilled registers."""

import pytest
import torch

from kvbench.methods.spindlekv.ops.codebook_attention import codebook_attention
from kvbench.methods.spindlekv.ops.codebook_layout import KEYS, VALUES
from kvbench.ops.operator import LAUNCHES
from kvbench.ops.rope import Rope
from tests.support.codebook_caches import random_cache
from tests.support.codebook_twins import TOLERANCE
from tests.support.codebook_twins import attention_agrees as agrees
from tests.support.kernels import ARCHITECTURES, compiled, interpreted, record_launches, resources
from tests.support.needs import need, packages
from tests.support.tiny import tiny_model

pytestmark = pytest.mark.kernels
need("triton", packages("triton", "triton"))

from kvbench.methods.spindlekv.ops.kernels import codebook_attention as kernels  # noqa: E402


def rope(head_dim):
    return Rope.of(tiny_model(head_dim=head_dim))


@interpreted
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("group", [1, 3, 4, 8])
def test_streams_of_odd_lengths_and_none_read_their_entries(group, dtype):
    cache = random_cache([37, 0], [11, 0], [5, 7], group, 8, dtype, bits=[0])
    agrees(cache, group)
    agrees(cache, group, decoded=3)


@interpreted
@pytest.mark.parametrize("head_dim", [64, 80, 96, 128, 256])
def test_every_head_size_is_covered(head_dim):
    agrees(random_cache([21, 5], [9, 3], [0, 2], 2, head_dim, bits=[1], runs=[0], rope=rope(head_dim)), 2, decoded=1)


@interpreted
def test_references_of_two_and_four_bytes_and_long_streams_in_several_splits_are_read():
    agrees(random_cache([300, 20], [400, 3], [1, 1], 2, 8, bits=[0, 1]), 2)
    agrees(random_cache([9, 9], [70000, 300], [1, 1], 1, 8), 1)


@interpreted
def test_streams_that_share_a_book_or_a_head_and_entries_without_magnitudes_are_read():
    agrees(random_cache([20, 13], [17], [3, 3], 2, 8, reconstruct=False), 2, decoded=2)
    agrees(random_cache([20, 13, 8, 9], [7, 6, 5, 4], [3, 3], 1, 8, torch.bfloat16), 1, decoded=2)


@interpreted
def test_a_call_launches_what_the_operator_says(monkeypatch):
    launched = record_launches(monkeypatch, kernels, "codebook_split_kernel", "combine_kernel")
    agrees(random_cache([4], [2], [1], 1, 8), 1)
    assert len(launched) == LAUNCHES[codebook_attention.__name__]


SIGNATURE = {
    **dict.fromkeys(["key_references", "value_references", "bits"], "*u8"),
    **dict.fromkeys(["turns", "partial", "lse"], "*fp32"),
    **dict.fromkeys(["prompt", "split_tokens", "total"], "i32"),
    "decoded": "*i32",
    "positions": "*u16",
    **dict.fromkeys(["layout", "order"], "*i64"),
    "scaling": "fp32",
}
STORED = ["query", "key_entries", "key_magnitudes", "value_entries", "value_magnitudes", "raw_keys", "raw_values"]


@compiled
@pytest.mark.parametrize("sm", ARCHITECTURES)
@pytest.mark.parametrize("head_dim, dtype, group", [
    (64, "bf16", 3), (80, "bf16", 1), (96, "bf16", 8), (128, "bf16", 4), (128, "fp32", 4), (256, "bf16", 8),
    (256, "fp32", 1),
])  # fmt: skip
def test_the_split_kernel_spills_no_registers(head_dim, dtype, group, sm):
    constants = {"GROUP": group, "D": head_dim, "PAIRS": head_dim // 2, "FIELDS": kernels.FIELDS}
    constants |= {"KEYS": KEYS, "VALUES": VALUES, "MAGNITUDES": True, **kernels.block_sizes(group, head_dim)}
    signature = SIGNATURE | dict.fromkeys(STORED, f"*{dtype}")
    options = kernels.compiler_options(head_dim, 4 if dtype == "fp32" else 2)
    used = resources(kernels.codebook_split_kernel, signature, constants, sm, **options)
    assert used["spills"] == 0, used
    assert used["shared"] <= 100_000, used
