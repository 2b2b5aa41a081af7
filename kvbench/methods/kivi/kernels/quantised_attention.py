"""Triton: attention over packed codes, split over tokens, and the parts combined. Two launches."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kvbench.methods.kivi.quantised_attention import Stored
from kvbench.ops.kernels.combine import combine_kernel
from kvbench.ops.kernels.dot import dot

MOST_PROGRAMS = 1024  # about what fills a GPU
LEAST_TOKENS = 256  # per split
SPLITS_AT_ONCE = 16  # in `combine_kernel`
OPTIONS = {"num_warps": 8, "num_stages": 1}  # stages would copy the gathered scales and rows to shared memory


# Arguments that change while decoding must not be part of the compiled code: the kernel would be compiled again between
# two tokens.
@triton.jit(do_not_specialize=["split_tokens", "value_codes_head", "value_scale_head"])
def split_kernel(
    query: tl.tensor, key_codes: tl.tensor, key_scale: tl.tensor, key_minimum: tl.tensor, key_rows: tl.tensor,
    value_codes: tl.tensor, value_scale: tl.tensor, value_minimum: tl.tensor, value_rows: tl.tensor, partial: tl.tensor,
    lse: tl.tensor, lengths: tl.tensor, ring: tl.tensor, split_tokens: tl.tensor, g: tl.tensor, scaling: tl.tensor,
    key_codes_head: tl.tensor, key_scale_head: tl.tensor, key_rows_head: tl.tensor, value_codes_head: tl.tensor,
    value_scale_head: tl.tensor, value_rows_head: tl.tensor,
    KEY_BITS: tl.constexpr, VALUE_BITS: tl.constexpr, GROUP: tl.constexpr, D: tl.constexpr, WIDTH: tl.constexpr,
    BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr,
) -> None:  # fmt: skip
    """One program: a stored head with its g query heads, a stretch of `split_tokens` tokens, BLOCK_M query heads.

    Codes, scales and minima are read in place and restored in registers, in float32, then rounded to the query's dtype.
    NAME_head is the stride of a head; a minimum has the stride of its scale. Writes partial
    [splits, num_attention_heads, D], normalised, and its log2-sum-exp2 [splits, num_attention_heads]; -inf where a
    split begins after the last token.
    """
    head, split, heads = tl.program_id(0).to(tl.int64), tl.program_id(1), tl.num_programs(0)
    length = tl.load(lengths + head)
    older_keys, older_values = length - length % ring, tl.maximum(length - ring, 0)
    row = tl.program_id(2) * BLOCK_M + tl.arange(0, BLOCK_M)
    channel = tl.arange(0, WIDTH)
    within = channel < D
    at = head * g + row
    x = tl.load(query + at[:, None] * D + channel, mask=(row < g)[:, None] & within, other=0.0)
    KEY_BYTES: tl.constexpr = GROUP * KEY_BITS // 8
    KEY_MASK: tl.constexpr = 2**KEY_BITS - 1
    VALUE_BYTES: tl.constexpr = GROUP * VALUE_BITS // 8
    VALUE_MASK: tl.constexpr = 2**VALUE_BITS - 1
    # where a channel's code lies in a token's values
    value_group, value_member = channel // GROUP, channel % GROUP
    value_byte = value_group * VALUE_BYTES + value_member % VALUE_BYTES
    value_shift = value_member // VALUE_BYTES * VALUE_BITS

    largest = tl.full([BLOCK_M], -float("inf"), tl.float32)
    total_weight = tl.zeros([BLOCK_M], tl.float32)
    out = tl.zeros([BLOCK_M, WIDTH], tl.float32)
    first = split * split_tokens
    for block in range(first, tl.minimum(first + split_tokens, length), BLOCK_N):
        token = block + tl.arange(0, BLOCK_N)
        slot = (token % ring)[:, None] * D + channel
        group, member = token // GROUP, token % GROUP

        coded = (token < older_keys)[:, None] & within
        raw = ((token >= older_keys) & (token < length))[:, None] & within
        byte = (group * KEY_BYTES + member % KEY_BYTES)[:, None] * D + channel
        codes = tl.load(key_codes + head * key_codes_head + byte, mask=coded, other=0).to(tl.int32)
        codes = (codes >> (member // KEY_BYTES * KEY_BITS)[:, None]) & KEY_MASK
        scale = head * key_scale_head + group[:, None] * D + channel
        k = codes.to(tl.float32) * tl.load(key_scale + scale, mask=coded, other=0.0).to(tl.float32)
        k += tl.load(key_minimum + scale, mask=coded, other=0.0).to(tl.float32)
        k += tl.load(key_rows + head * key_rows_head + slot, mask=raw, other=0.0).to(tl.float32)

        score = dot(x, tl.trans(k.to(x.dtype))) * scaling  # scaling · log2(e)
        score = tl.where((token < length)[None, :], score, -float("inf"))
        new = tl.maximum(largest, tl.max(score, 1))
        weight = tl.exp2(score - new[:, None])
        decay = tl.exp2(largest - new)
        total_weight = total_weight * decay + tl.sum(weight, 1)

        coded = (token < older_values)[:, None] & within
        raw = ((token >= older_values) & (token < length))[:, None] & within
        byte = token[:, None] * (D * VALUE_BITS // 8) + value_byte
        codes = tl.load(value_codes + head * value_codes_head + byte, mask=coded, other=0).to(tl.int32)
        codes = (codes >> value_shift) & VALUE_MASK
        scale = head * value_scale_head + token[:, None] * (D // GROUP) + value_group
        v = codes.to(tl.float32) * tl.load(value_scale + scale, mask=coded, other=0.0).to(tl.float32)
        v += tl.load(value_minimum + scale, mask=coded, other=0.0).to(tl.float32)
        v += tl.load(value_rows + head * value_rows_head + slot, mask=raw, other=0.0).to(tl.float32)

        v = v.to(x.dtype)
        out = out * decay[:, None] + dot(weight.to(v.dtype), v)
        largest = new
    empty = total_weight == 0
    total_weight = tl.where(empty, 1.0, total_weight)
    place = split.to(tl.int64) * heads * g + at
    tl.store(lse + place, tl.where(empty, -float("inf"), largest + tl.log2(total_weight)), mask=row < g)
    tl.store(partial + place[:, None] * D + channel, out / total_weight[:, None], mask=(row < g)[:, None] & within)


def quantised_attention(
    query: Tensor, keys: Stored, values: Stored, lengths: Tensor, longest: int, ring: int, group: int, scaling: float
) -> Tensor:
    """See `kvbench.methods.kivi.quantised_attention`."""
    query = query.contiguous()
    num_heads, head_dim = query.shape[1], query.shape[3]
    heads = keys.rows.shape[0]
    g = num_heads // heads
    sizes = block_sizes(g, head_dim, query.dtype, max(keys.bits, values.bits))
    blocks = triton.cdiv(g, sizes["BLOCK_M"])
    splits = max(1, min(triton.cdiv(longest, LEAST_TOKENS), MOST_PROGRAMS // (heads * blocks)))
    split_tokens = triton.cdiv(triton.cdiv(longest, splits), sizes["BLOCK_N"]) * sizes["BLOCK_N"]
    splits = triton.cdiv(longest, split_tokens)
    partial = query.new_empty(splits, num_heads, head_dim, dtype=torch.float32)
    lse = query.new_empty(splits, num_heads, dtype=torch.float32)
    out = torch.empty_like(query)
    split_kernel[(heads, splits, blocks)](
        query, *keys[:4], *values[:4], partial, lse, lengths, ring, split_tokens, g, scaling * 1.4426950408889634,
        keys.codes.stride(0), keys.scale.stride(0), keys.rows.stride(0),
        values.codes.stride(0), values.scale.stride(0), values.rows.stride(0),
        KEY_BITS=keys.bits, VALUE_BITS=values.bits, GROUP=group, D=head_dim, **sizes, **OPTIONS,
    )  # fmt: skip
    combine_kernel[(num_heads,)](
        partial, lse, out, splits, num_heads, D=head_dim, WIDTH=sizes["WIDTH"], AT_ONCE=SPLITS_AT_ONCE, num_warps=2
    )
    return out


def block_sizes(g: int, head_dim: int, dtype: torch.dtype, bits: int) -> dict[str, int]:
    """Block sizes of `split_kernel` that fit in registers and shared memory, for g query heads per stored head and
    codes of at most `bits` bits.

    They were found by compiling for sm_80 and sm_90: other sizes spill registers.
    """
    width = max(16, triton.next_power_of_2(head_dim))
    if dtype.itemsize == 2:
        tokens = 64 if width <= 64 else 32
    else:
        tokens = 32 if width <= 64 or (width > 128 and bits == 8) else 16
    return {"WIDTH": width, "BLOCK_M": 16 if g <= 16 else 32, "BLOCK_N": tokens}
