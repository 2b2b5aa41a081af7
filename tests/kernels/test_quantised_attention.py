"""Attention over packed codes in Triton: the reference's numbers, two launches, no spilled registers."""

import pytest
import torch
from torch.testing import assert_close

from tests.support.kernels import ARCHITECTURES, compiled, interpreted, record_launches, resources
from tests.support.needs import need, packages
from tests.support.quantised import TOLERANCE, arguments, plain_attention, sequences

pytestmark = pytest.mark.kernels
need("triton", packages("triton", "triton"))

from kvbench.methods.kivi.kernels import quantised_attention as kernels  # noqa: E402


def agrees(n, grown, heads, g, head_dim, bits, group, ring, dtype):
    keys, values = sequences(n, heads, head_dim, bits, group, ring, dtype, grown)
    query = torch.randn(1, heads * g, 1, head_dim, generator=torch.Generator().manual_seed(1)).to(dtype)
    out = kernels.quantised_attention(*arguments(query, keys, values, head_dim**-0.5))
    assert out.dtype == dtype
    expected = plain_attention(query, keys.read(), values.read(), head_dim**-0.5)
    assert_close(out.float(), expected, **TOLERANCE[dtype])


@interpreted
@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("n, grown, heads, g, head_dim, bits, group, ring", [
    (1, 0, 2, 1, 64, 4, 32, 32),
    (32, 0, 1, 3, 64, 8, 32, 32),  # all keys quantised, no value
    (77, 41, 2, 4, 80, 4, 16, 16),
    (50, 33, 1, 8, 96, 2, 32, 32),
    (70, 0, 1, 4, 128, 4, 32, 64),
    (70, 20, 1, 4, 64, (8, 2), 32, 32),
    (70, 20, 1, 4, 64, (2, 4), 32, 32),
    (67, 3, 1, 3, 256, 2, 64, 64),
    (40, 33, 2, 3, 8, 2, 4, 12),
])  # fmt: skip
def test_it_is_attention_over_the_restored_rows(n, grown, heads, g, head_dim, bits, group, ring, dtype):
    agrees(n, grown, heads, g, head_dim, bits, group, ring, dtype)


@interpreted
def test_long_sequences_are_split_over_tokens():
    agrees(613, 0, 1, 2, 16, 4, 16, 32, torch.float32)


@interpreted
def test_a_call_launches_what_the_operator_says(monkeypatch):
    from kvbench.ops.operator import LAUNCHES

    launched = record_launches(monkeypatch, kernels, "split_kernel", "combine_kernel")
    agrees(9, 0, 1, 1, 16, 4, 16, 16, torch.float32)
    assert len(launched) == LAUNCHES["quantised_attention"]


POINTERS = ["query", "key_scale", "key_minimum", "key_rows", "value_scale", "value_minimum", "value_rows"]
NUMBERS = ["ring", "split_tokens", "g"]
HEADS = [f"{what}_{part}_head" for what in ("key", "value") for part in ("codes", "scale", "rows")]


@compiled
@pytest.mark.parametrize("sm", ARCHITECTURES)
@pytest.mark.parametrize("head_dim, g, dtype, bits", [
    (64, 3, torch.float32, 4), (64, 3, torch.bfloat16, 2), (96, 4, torch.bfloat16, 4), (128, 4, torch.bfloat16, 4),
    (128, 4, torch.bfloat16, 2), (128, 4, torch.float32, 4), (128, 32, torch.bfloat16, 4),
    (256, 8, torch.bfloat16, 4), (256, 8, torch.float32, 8), (256, 8, torch.float32, 4),
])  # fmt: skip
def test_the_split_kernel_spills_no_registers(head_dim, g, dtype, bits, sm):
    names = {torch.float32: "*fp32", torch.bfloat16: "*bf16"}
    signature = dict.fromkeys(POINTERS, names[dtype]) | dict.fromkeys([*NUMBERS, *HEADS], "i32")
    signature |= {"key_codes": "*u8", "value_codes": "*u8", "partial": "*fp32", "lse": "*fp32", "scaling": "fp32"}
    signature["lengths"] = "*i32"
    constants = {
        "KEY_BITS": bits,
        "VALUE_BITS": bits,
        "GROUP": 32,
        "D": head_dim,
        **kernels.block_sizes(g, head_dim, dtype, bits),
    }
    used = resources(kernels.split_kernel, signature, constants, sm, **kernels.OPTIONS)
    assert used["spills"] == 0, used
    assert used["shared"] <= 100_000, used
