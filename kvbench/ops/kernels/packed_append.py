"""Triton: new tokens appended to every packed segment in one launch."""

import triton
import triton.language as tl
from torch import Tensor


@triton.jit
def append_kernel(
    keys: tl.tensor, values: tl.tensor, lengths: tl.tensor, starts: tl.tensor, sources: tl.tensor, new_keys: tl.tensor,
    new_values: tl.tensor, stride_row: tl.tensor, stride_head: tl.tensor, stride_token: tl.tensor, kv_heads: tl.tensor,
    t: tl.tensor, D: tl.constexpr, WIDTH: tl.constexpr,
) -> None:  # fmt: skip
    """One program per segment, which alone reads and writes the segment's length. Capacity · D may exceed 2^31."""
    segment = tl.program_id(0)
    length = tl.load(lengths + segment)
    place = (tl.load(starts + segment) + length).to(tl.int64) * D
    source = tl.load(sources + segment)
    first = (source // kv_heads).to(tl.int64) * stride_row + (source % kv_heads) * stride_head
    channel = tl.arange(0, WIDTH)
    within = channel < D
    for token in range(t):
        new = first + token * stride_token + channel
        old = place + token * D + channel
        tl.store(keys + old, tl.load(new_keys + new, mask=within), mask=within)
        tl.store(values + old, tl.load(new_values + new, mask=within), mask=within)
    tl.store(lengths + segment, length + t)


def packed_append(
    keys: Tensor,
    values: Tensor,
    lengths: Tensor,
    starts: Tensor,
    sources: Tensor,
    new_keys: Tensor,
    new_values: Tensor,
) -> None:
    """See `kvbench.ops.packed_append`."""
    _, kv_heads, t, head_dim = new_keys.shape
    if new_keys.stride() != new_values.stride() or new_keys.stride(3) != 1:
        new_keys, new_values = new_keys.contiguous(), new_values.contiguous()
    append_kernel[(len(lengths),)](
        keys, values, lengths, starts, sources, new_keys, new_values, *new_keys.stride()[:3], kv_heads, t,
        D=head_dim, WIDTH=triton.next_power_of_2(head_dim), num_warps=1,
    )  # fmt: skip
