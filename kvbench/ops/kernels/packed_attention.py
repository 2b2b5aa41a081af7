"""Triton: attention over packed segments, split over keys, and the parts combined. Two launches."""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from kvbench.ops.kernels.combine import combine_kernel
from kvbench.ops.kernels.dot import dot
from kvbench.ops.segments import Segments, Visible

MOST_PROGRAMS = 4096  # about this many fill a GPU, with several on each multiprocessor
LEAST_KEYS = 256  # keys per split
SPLITS_AT_ONCE = 16  # in `combine_kernel`
LOG2_E = 1 / math.log(2)


@triton.jit(do_not_specialize=["split_keys"])
def split_kernel(
    query: tl.tensor, keys: tl.tensor, values: tl.tensor, starts: tl.tensor, lengths: tl.tensor, heads: tl.tensor,
    masked: tl.tensor, bit_starts: tl.tensor, bits: tl.tensor, partial: tl.tensor, lse: tl.tensor, q: tl.tensor,
    total: tl.tensor, split_keys: tl.tensor, scaling: tl.tensor, D: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, BITS: tl.constexpr,
) -> None:  # fmt: skip
    """One program per segment, `split_keys` of its keys, and BLOCK_M of its group · q query rows.

    The q queries of a group's heads are adjacent in query [total, D], total = rows · num_attention_heads · q.
    Writes partial [splits, total, D], normalised, and its log2-sum-exp2 [splits, total]; -inf if no key is seen.
    """
    segment, split = tl.program_id(0), tl.program_id(1)
    length = tl.load(lengths + segment)
    start = tl.load(starts + segment).to(tl.int64)
    head = tl.load(heads + segment)
    rows = (tl.load(heads + segment + 1) - head) * q
    row = tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)
    channel = tl.arange(0, WIDTH)
    within = channel < D
    in_segment = row < rows
    first_row = (head * q).to(tl.int64)  # index among all query rows
    x = tl.load(query + first_row * D + row[:, None] * D + channel, mask=in_segment[:, None] & within, other=0.0)
    keys += start * D
    values += start * D
    last = length - q + row % q  # the last token that a query sees
    if BITS:
        bound = tl.load(masked + segment)
        bit_row = tl.load(bit_starts + segment).to(tl.int64) + (row // q) * ((bound + 7) // 8)

    largest = tl.full([BLOCK_M], -float("inf"), tl.float32)
    total_weight = tl.zeros([BLOCK_M], tl.float32)
    out = tl.zeros([BLOCK_M, WIDTH], tl.float32)
    first = split * split_keys
    for block in range(first, tl.minimum(first + split_keys, length), BLOCK_N):
        token = block + tl.arange(0, BLOCK_N)
        stored = token[:, None] * D + channel
        filled = (token < length)[:, None] & within
        k = tl.load(keys + stored, mask=filled, other=0.0)
        score = dot(x, tl.trans(k)) * scaling  # scaling · log2(e)
        seen = (token <= last[:, None]) & in_segment[:, None]
        if BITS:
            hidden = (token < bound)[None, :] & in_segment[:, None]
            byte = tl.load(bits + bit_row[:, None] + token // 8, mask=hidden, other=255).to(tl.int32)
            seen = seen & (((byte >> (token % 8)) & 1) != 0)
        score = tl.where(seen, score, -float("inf"))
        new = tl.maximum(largest, tl.max(score, 1))
        base = tl.where(new == -float("inf"), 0.0, new)  # no key seen yet
        weight = tl.exp2(score - base[:, None])
        decay = tl.exp2(largest - base)
        total_weight = total_weight * decay + tl.sum(weight, 1)
        v = tl.load(values + stored, mask=filled, other=0.0)
        out = out * decay[:, None] + dot(weight.to(v.dtype), v)
        largest = new
    empty = total_weight == 0
    out = out / tl.where(empty, 1.0, total_weight)[:, None]
    place = split.to(tl.int64) * total + first_row
    tl.store(
        lse + place + row,
        tl.where(empty, -float("inf"), largest + tl.log2(tl.where(empty, 1.0, total_weight))),
        mask=in_segment,
    )
    tl.store(partial + place * D + row[:, None] * D + channel, out, mask=in_segment[:, None] & within)


def packed_attention(
    query: Tensor, keys: Tensor, values: Tensor, segments: Segments, scaling: float, visible: Visible
) -> Tensor:
    """See `kvbench.ops.packed_attention`."""
    query = query.contiguous()
    rows, num_heads, q, head_dim = query.shape
    starts, lengths, heads, group, longest = segments
    total, count = rows * num_heads * q, len(lengths)
    sizes = block_sizes(group * q, head_dim)
    blocks = triton.cdiv(group * q, sizes["BLOCK_M"])
    splits = max(1, min(triton.cdiv(longest, LEAST_KEYS), MOST_PROGRAMS // (count * blocks)))
    split_keys = triton.cdiv(triton.cdiv(longest, splits), sizes["BLOCK_N"]) * sizes["BLOCK_N"]
    partial = query.new_empty(splits, total, head_dim, dtype=torch.float32)
    lse = query.new_empty(splits, total, dtype=torch.float32)
    out = torch.empty_like(query)
    has_bits = visible.bits is not None
    mask = visible if has_bits else (lengths, lengths, lengths)
    split_kernel[(count, splits, blocks)](
        query, keys, values, starts, lengths, heads, *mask, partial, lse, q, total, split_keys, scaling * LOG2_E,
        D=head_dim, BITS=has_bits, **sizes,
    )  # fmt: skip
    combine_kernel[(total,)](
        partial, lse, out, splits, total, D=head_dim, WIDTH=sizes["WIDTH"], AT_ONCE=SPLITS_AT_ONCE, num_warps=2
    )
    return out


def block_sizes(query_rows: int, head_dim: int) -> dict[str, int]:
    """Block sizes of `split_kernel` that fit in registers and shared memory, for segments of `query_rows` rows."""
    width = max(16, triton.next_power_of_2(head_dim))
    many_rows = query_rows > 16 and width <= 128
    keys = max(16, min(64, 4096 // width))  # Triton's smallest product
    return {"WIDTH": width, "BLOCK_M": 32 if many_rows else 16, "BLOCK_N": keys}
