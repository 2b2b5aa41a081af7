"""Triton: rows from shared directions, one launch."""

import triton
import triton.language as tl
from torch import Tensor

from kvbench.ops.kernels.registers import most_registers

COUNTED = 1024  # tokens whose bits are counted at a time


@triton.jit
def merged_rows_kernel(
    directions: tl.tensor, magnitudes: tl.tensor, retained: tl.tensor, bits: tl.tensor, out: tl.tensor, n: tl.tensor,
    k: tl.tensor, bytes_: tl.tensor, head_directions: tl.tensor, head_retained: tl.tensor, D: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK: tl.constexpr, COUNT: tl.constexpr,
) -> None:  # fmt: skip
    """One program per head and BLOCK tokens. A row's place among retained (merged) rows is their number before it."""
    head, first = tl.program_id(0).to(tl.int64), tl.program_id(1) * BLOCK
    head_bits = bits + head * bytes_
    before = 0  # retained tokens before `first`
    for start in range(0, first, COUNT):
        token = start + tl.arange(0, COUNT)
        byte = tl.load(head_bits + token // 8, mask=token < first, other=0).to(tl.int32)
        before += tl.sum((byte >> (token % 8)) & 1, 0)
    token = first + tl.arange(0, BLOCK)
    byte = tl.load(head_bits + token // 8, mask=token < n, other=0).to(tl.int32)
    bit = (byte >> (token % 8)) & 1
    rank = before + tl.cumsum(bit, 0) - bit  # retained tokens before each
    channel = tl.arange(0, WIDTH)
    kept = ((bit == 1) & (token < n))[:, None] & (channel < D)
    merged = ((bit == 0) & (token < n))[:, None] & (channel < D)
    unmerged = tl.load(retained + head * head_retained + rank[:, None] * D + channel, mask=kept, other=0.0)
    place = token - rank
    length = tl.load(magnitudes + head * (n - k) + place, mask=(bit == 0) & (token < n), other=0.0).to(tl.float32)
    at = directions + head * head_directions + place[:, None] * D + channel
    row = tl.load(at, mask=merged, other=0.0).to(tl.float32) * length[:, None]
    row = tl.where(kept, unmerged.to(tl.float32), row)
    tl.store(out + (head * n + token[:, None]) * D + channel, row.to(out.dtype.element_ty), mask=kept | merged)


def merged_rows(directions: Tensor, magnitudes: Tensor, retained: Tensor, bits: Tensor) -> Tensor:
    """See `kvbench.methods.minicache.merged_rows`."""
    heads, k, head_dim = retained.shape
    n = k + directions.shape[1]
    out = retained.new_empty(heads, n, head_dim)
    sizes = block_sizes(head_dim)
    limit = most_registers(168) if retained.element_size() == 2 else {}
    merged_rows_kernel[(heads, triton.cdiv(n, sizes["BLOCK"]))](
        directions, magnitudes.contiguous(), retained, bits.contiguous(), out, n, k, bits.shape[1],
        directions.stride(0), retained.stride(0), D=head_dim, **sizes, **limit,
    )  # fmt: skip
    return out


def block_sizes(head_dim: int) -> dict[str, int]:
    """Block sizes of `merged_rows_kernel`."""
    width = triton.next_power_of_2(head_dim)
    return {"WIDTH": width, "BLOCK": max(8192 // width, 8), "COUNT": COUNTED}
