"""Triton: attention over a codebook cache, split over tokens, and the parts combined. Two launches.

Keys are rotated in registers. Channels come in paired order, so a head is two tiles of half its width: the first and
the second channels of all pairs.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kvbench.methods.spindlekv.ops.codebook_layout import KEYS, VALUES, Coded, Layout, Place, Rotation, Seen, Vectors
from kvbench.methods.spindlekv.ops.kernels.codebook_references import load_references
from kvbench.ops.kernels.combine import combine_kernel
from kvbench.ops.kernels.dot import dot
from kvbench.ops.kernels.registers import most_registers

MOST_PROGRAMS = 4096  # about what fills a GPU with several programs on each of its multiprocessors
LEAST_TOKENS = 256  # per split
SPLITS_AT_ONCE = 16  # in `combine_kernel`
FIELDS = len(Place._fields)


@triton.jit
def accumulate(
    score: tl.tensor, weigh: tl.tensor, v: tl.tensor, largest: tl.tensor, total_weight: tl.tensor, out: tl.tensor,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:  # fmt: skip
    """One step of an online softmax in base 2: scores [m, n] of values v [n, width]; `weigh` [n] multiplies values."""
    new = tl.maximum(largest, tl.max(score, 1))
    base = tl.where(new == -float("inf"), 0.0, new)  # no token seen yet
    weight = tl.exp2(score - base[:, None])
    decay = tl.exp2(largest - base)
    out = out * decay[:, None] + dot((weight * weigh[None, :]).to(v.dtype), v)
    return new, total_weight * decay + tl.sum(weight, 1), out


@triton.jit(do_not_specialize=["prompt", "split_tokens", "total"])
def codebook_split_kernel(
    query: tl.tensor, key_entries: tl.tensor, key_references: tl.tensor, key_magnitudes: tl.tensor,
    value_entries: tl.tensor, value_references: tl.tensor, value_magnitudes: tl.tensor, positions: tl.tensor,
    bits: tl.tensor, raw_keys: tl.tensor, raw_values: tl.tensor, order: tl.tensor, turns: tl.tensor, layout: tl.tensor,
    partial: tl.tensor, lse: tl.tensor, prompt: tl.tensor, decoded: tl.tensor, split_tokens: tl.tensor,
    total: tl.tensor, scaling: tl.tensor, GROUP: tl.constexpr, D: tl.constexpr, PAIRS: tl.constexpr, HALF: tl.constexpr,
    WIDTH: tl.constexpr, BLOCK_M: tl.constexpr, BLOCK_N: tl.constexpr, FIELDS: tl.constexpr, KEYS: tl.constexpr,
    VALUES: tl.constexpr, MAGNITUDES: tl.constexpr,
) -> None:  # fmt: skip
    """One program per stream and `split_tokens` of its coded tokens; the last split has the raw tokens.

    Writes partial [splits, total, D], normalised, and its log2-sum-exp2 [splits, total]; -inf if no token is seen.
    scaling: the scores' scaling times log2(e); total = num_attention_heads.
    """
    stream, split = tl.program_id(0), tl.program_id(1)
    place = layout + stream * FIELDS
    tokens = tl.load(place).to(tl.int32)
    coded = tokens + tl.load(decoded + stream)
    start = tl.load(place + 1)
    position_start = tl.load(place + 2)
    bit_start = tl.load(place + 3)
    raw = tl.load(place + 4)
    window = tl.load(place + 5).to(tl.int32)
    key_book, key_offset, key_width = tl.load(place + KEYS), tl.load(place + KEYS + 1), tl.load(place + KEYS + 2)
    book, offset, width = tl.load(place + VALUES), tl.load(place + VALUES + 1), tl.load(place + VALUES + 2)
    key_entries += key_book * D
    value_entries += book * D
    listed = tl.where(position_start >= 0, tokens, 0)  # tokens with a stored position
    masked = tl.where(bit_start >= 0, tokens, 0)  # tokens with stored bits

    row, half, channel = tl.arange(0, BLOCK_M), tl.arange(0, HALF), tl.arange(0, WIDTH)
    at = (stream * GROUP + row).to(tl.int64)
    in_group, paired, within = row < GROUP, half < D // 2, channel < D
    first_channel = tl.load(order + 2 * half, mask=paired, other=0)
    second_channel = tl.load(order + 2 * half + 1, mask=paired, other=0)
    place_q = query + at[:, None] * D
    x = tl.load(place_q + first_channel[None, :], mask=in_group[:, None] & paired, other=0.0)
    y = tl.load(place_q + second_channel[None, :], mask=in_group[:, None] & paired, other=0.0)

    largest = tl.full([BLOCK_M], -float("inf"), tl.float32)
    total_weight = tl.zeros([BLOCK_M], tl.float32)
    out = tl.zeros([BLOCK_M, WIDTH], tl.float32)
    is_raw = split == tl.num_programs(1) - 1
    first = split * split_tokens
    end = tl.where(is_raw, 0, tl.minimum(first + split_tokens, coded))
    for block in range(first, end, BLOCK_N):
        token = block + tl.arange(0, BLOCK_N)
        filled = token < end
        stored = tl.load(positions + position_start + token, mask=token < listed, other=0).to(tl.int32)
        position = tl.where(token < listed, stored, tl.where(token < tokens, token, prompt + token - tokens))
        turned = filled[:, None] & (half < PAIRS)
        place_t = turns + position[:, None] * (2 * PAIRS) + 2 * half
        cosine = tl.load(place_t, mask=turned, other=1.0)
        sine = tl.load(place_t + 1, mask=turned, other=0.0)
        mask_k = filled[:, None] & paired
        reference = load_references(key_references + key_offset, token, key_width.to(tl.int32), end)
        place_k = key_entries + reference[:, None] * D + 2 * half
        k = tl.load(place_k, mask=mask_k, other=0.0)
        j = tl.load(place_k + 1, mask=mask_k, other=0.0)
        turned_k = (k * cosine - j * sine).to(k.dtype)
        turned_j = (k * sine + j * cosine).to(k.dtype)
        score = (dot(x, tl.trans(turned_k)) + dot(y, tl.trans(turned_j))) * scaling
        weigh = tl.full([BLOCK_N], 1.0, tl.float32)
        if MAGNITUDES:
            score *= tl.load(key_magnitudes + start + token, mask=filled, other=0.0).to(tl.float32)[None, :]
            weigh = tl.load(value_magnitudes + start + token, mask=filled, other=0.0).to(tl.float32)
        hidden = (token < masked)[None, :] & in_group[:, None]
        place_b = bits + bit_start + row[:, None] * ((tokens + 7) // 8) + (token // 8)[None, :]
        byte = tl.load(place_b, mask=hidden, other=255).to(tl.int32)
        seen = filled[None, :] & (((byte >> (token % 8)[None, :]) & 1) != 0)
        score = tl.where(seen, score, -float("inf"))
        reference = load_references(value_references + offset, token, width.to(tl.int32), end)
        place_v = value_entries + reference[:, None] * D + channel
        v = tl.load(place_v, mask=filled[:, None] & within, other=0.0)
        largest, total_weight, out = accumulate(score, weigh, v, largest, total_weight, out)
    for block in range(0, tl.where(is_raw, window, 0), BLOCK_N):
        token = block + tl.arange(0, BLOCK_N)
        filled = token < window
        place_k = raw_keys + raw * D + token[:, None] * D + 2 * half
        k = tl.load(place_k, mask=filled[:, None] & paired, other=0.0)
        j = tl.load(place_k + 1, mask=filled[:, None] & paired, other=0.0)
        score = (dot(x, tl.trans(k)) + dot(y, tl.trans(j))) * scaling
        score = tl.where(filled[None, :], score, -float("inf"))
        place_v = raw_values + raw * D + token[:, None] * D + channel
        v = tl.load(place_v, mask=filled[:, None] & within, other=0.0)
        weigh = tl.full([BLOCK_N], 1.0, tl.float32)
        largest, total_weight, out = accumulate(score, weigh, v, largest, total_weight, out)
    empty = total_weight == 0
    out = out / tl.where(empty, 1.0, total_weight)[:, None]
    sum_exp = tl.where(empty, -float("inf"), largest + tl.log2(tl.where(empty, 1.0, total_weight)))
    to = split.to(tl.int64) * total + at
    tl.store(lse + to, sum_exp, mask=in_group)
    tl.store(partial + to[:, None] * D + channel, out, mask=in_group[:, None] & within)


def codebook_attention(
    query: Tensor,
    keys: Coded,
    values: Coded,
    seen: Seen,
    raw: Vectors,
    rotation: Rotation,
    layout: Layout,
    longest: int,
    scaling: float,
) -> Tensor:
    """See `kvbench.methods.spindlekv.ops.codebook_attention`."""
    query = query.contiguous()
    streams, group, head_dim = query.shape
    total, constants = streams * group, block_sizes(group, head_dim)
    block = constants["BLOCK_N"]
    parts = max(1, min(triton.cdiv(longest, LEAST_TOKENS), MOST_PROGRAMS // streams))
    split_tokens = triton.cdiv(triton.cdiv(longest, parts), block) * block
    splits = triton.cdiv(longest, max(split_tokens, 1)) + 1  # and one for raw tokens
    partial = query.new_empty(splits, total, head_dim, dtype=torch.float32)
    lse = query.new_empty(splits, total, dtype=torch.float32)
    out = torch.empty_like(query)
    codebook_split_kernel[(streams, splits)](
        query, keys.entries, keys.references, keys.entries if keys.magnitudes is None else keys.magnitudes,
        values.entries, values.references, values.entries if values.magnitudes is None else values.magnitudes,
        keys.references if seen.positions is None else seen.positions,
        keys.references if seen.bits is None else seen.bits, *raw, *rotation, layout.places, partial, lse,
        layout.prompt, layout.decoded, split_tokens, total, scaling * 1.4426950408889634,
        GROUP=group, D=head_dim, PAIRS=rotation.turns.shape[1], FIELDS=FIELDS, KEYS=KEYS, VALUES=VALUES,
        MAGNITUDES=keys.magnitudes is not None, **constants, **compiler_options(head_dim, query.element_size()),
    )  # fmt: skip
    combine_kernel[(total,)](
        partial, lse, out, splits, total, D=head_dim, WIDTH=constants["WIDTH"], AT_ONCE=SPLITS_AT_ONCE, num_warps=2
    )
    return out


def block_sizes(group: int, head_dim: int) -> dict[str, int]:
    """Block sizes of the split kernel that fit in registers and shared memory."""
    width = max(32, triton.next_power_of_2(head_dim))
    return {
        "HALF": max(16, triton.next_power_of_2(head_dim // 2)),
        "WIDTH": width,
        "BLOCK_M": max(16, triton.next_power_of_2(group)),
        "BLOCK_N": 64 if width <= 64 else 32 if width <= 128 else 16,
    }


def compiler_options(head_dim: int, element_size: int) -> dict[str, int]:
    """Options with which the split kernel spills no registers.

    More stages would hold several blocks of scattered loads. Narrow heads, and wide heads in float32, compile to fewer
    registers with 4 warps.
    """
    few = head_dim <= 64 or (head_dim > 128 and element_size == 4)
    limit = most_registers(255) if element_size == 2 else {}
    return {"num_warps": 4 if few else 8, "num_stages": 1, **limit}
