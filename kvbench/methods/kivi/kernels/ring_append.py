"""Triton: a new token written to the rings of all heads in one launch."""

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def ring_append_kernel(
    key_rows: tl.tensor, value_rows: tl.tensor, lengths: tl.tensor, keys: tl.tensor, values: tl.tensor,
    stride_row: tl.tensor, stride_head: tl.tensor, kv_heads: tl.tensor, copies: tl.tensor, ring: tl.tensor,
    key_head: tl.tensor, value_head: tl.tensor, D: tl.constexpr, WIDTH: tl.constexpr,
) -> None:  # fmt: skip
    """One program per head, which alone reads and writes the head's length. NAME_head: a ring's stride of heads."""
    head = tl.program_id(0).to(tl.int64)
    length = tl.load(lengths + head)
    source = head // copies
    new = source // kv_heads * stride_row + source % kv_heads * stride_head + tl.arange(0, WIDTH)
    slot = length % ring * D + tl.arange(0, WIDTH)
    within = tl.arange(0, WIDTH) < D
    tl.store(key_rows + head * key_head + slot, tl.load(keys + new, mask=within), mask=within)
    tl.store(value_rows + head * value_head + slot, tl.load(values + new, mask=within), mask=within)
    tl.store(lengths + head, length + 1)


def ring_append(key_rows: Tensor, value_rows: Tensor, lengths: Tensor, keys: Tensor, values: Tensor, ring: int) -> None:
    """See `kvbench.methods.kivi.ring_append`."""
    rows, kv_heads, _, head_dim = keys.shape
    if keys.stride() != values.stride() or keys.stride(3) != 1:
        keys, values = keys.contiguous(), values.contiguous()
    heads = len(lengths)
    ring_append_kernel[(heads,)](
        key_rows, value_rows, lengths, keys, values, keys.stride(0), keys.stride(1), kv_heads,
        heads // (rows * kv_heads), ring, key_rows.stride(0), value_rows.stride(0),
        D=head_dim, WIDTH=triton.next_power_of_2(head_dim), num_warps=1,
    )  # fmt: skip
