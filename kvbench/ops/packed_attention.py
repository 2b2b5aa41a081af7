"""Attention over packed keys and values (`kvbench.cache.packed`): heads and rows of any lengths in one call."""

from dataclasses import dataclass
from functools import lru_cache
from itertools import pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

from kvbench.ops.attention import bent_attention, dense_attention
from kvbench.ops.bits import unpack_bits
from kvbench.ops.operator import of_one_width, operator
from kvbench.ops.padded_attention import padded_attention
from kvbench.ops.segments import Segments, Visible
from kvbench.ops.softmax import Scaling, Softmax, of_heads
from kvbench.ops.varlen_attention import varlen_attends, varlen_attention

ALL = Visible()


def _torch_has_a_kernel(
    query: Tensor, keys: Tensor, values: Tensor, segments: Segments, scaling: float, visible: Visible = ALL
) -> bool:
    """Whether all segments have equal groups of several query heads, so that torch's kernel splits keys over programs.
    With one head per segment, or groups of different sizes, a segment would be one program at any length."""
    group, heads = segments.group, query.shape[0] * query.shape[1]
    grouped = group > 1 and heads == group * len(segments.lengths)
    return visible.bits is None and grouped and varlen_attends(query, values)


def _takes(query: Tensor, keys: Tensor, values: Tensor, *rest: object) -> bool:
    return of_one_width(keys, values)


def _fake(query: Tensor, keys: Tensor, values: Tensor, *rest: object) -> Tensor:
    return query.new_empty(*query.shape[:3], values.shape[1])


@operator(launches=2, fake=_fake, torch_first=_torch_has_a_kernel, takes=_takes)
def packed_attention(
    query: Tensor, keys: Tensor, values: Tensor, segments: Segments, scaling: Scaling, visible: Visible = ALL
) -> Tensor:
    """softmax(QKᵀ·scaling)V of query [rows, num_attention_heads, q, head_dim], each head over its segment of keys,
    values [capacity, head_dim], where values may have another width.

    The queries are of the last q tokens, and causal among these. A segment without tokens gives zeros.
    """
    if not query.is_cuda or isinstance(scaling, Softmax):
        return _on_cpu(query, keys, values, segments, scaling, visible)
    if visible.bits is None and varlen_attends(query, values):
        return varlen_attention(query, keys, values, segments, scaling)
    return padded_attention(query, keys, values, segments, scaling, visible)


@dataclass
class Block:
    """Query heads of neighbouring rows whose segments have equal lengths and distances, for one attention call."""

    row: int
    rows: int
    head: int
    heads: int
    segment: int
    segments: int  # segments per row
    start: int
    stride: int
    length: int

    def view(self, x: Tensor) -> Tensor:
        """The block's part of keys or values x [capacity, width]: [rows, segments, length, width]."""
        width = x.shape[1]
        return x.as_strided(
            (self.rows, self.segments, self.length, width),
            (self.segments * self.stride * width, self.stride * width, width, 1),
            x.storage_offset() + self.start * width,
        )


def _on_cpu(
    query: Tensor, keys: Tensor, values: Tensor, segments: Segments, scaling: Scaling, visible: Visible
) -> Tensor:
    """One call for each `Block`, without padding."""
    rows, num_heads, q, _ = query.shape
    starts, lengths, heads = (tuple(x.tolist()) for x in (segments.starts, segments.lengths, segments.heads))
    masked, bit_starts, bits = visible
    hidden = (0,) * len(lengths) if masked is None else tuple(masked.tolist())
    blocks = _blocks(starts, lengths, heads, hidden, num_heads)
    if len(blocks) == 1 and blocks[0].rows == rows and blocks[0].length and not any(hidden):
        return dense_attention(query, blocks[0].view(keys), blocks[0].view(values), scaling)
    out = query.new_zeros(rows, num_heads, q, values.shape[1])
    for block in blocks:
        at = (slice(block.row, block.row + block.rows), slice(block.head, block.head + block.heads))
        if not block.length:
            continue
        block_scaling = of_heads(scaling, at[1])
        if hidden[block.segment]:
            assert bits is not None and bit_starts is not None, "they come with `masked`"
            seen = bits[int(bit_starts[block.segment]) :]
            out[at] = _seen_by_bits(
                query[at], block.view(keys), block.view(values), block_scaling, seen, hidden[block.segment]
            )
        else:
            out[at] = dense_attention(query[at], block.view(keys), block.view(values), block_scaling)
    return out


@lru_cache(maxsize=8)  # the layers of a model often have the same segments
def _blocks(
    starts: tuple[int, ...], lengths: tuple[int, ...], heads: tuple[int, ...], hidden: tuple[int, ...], num_heads: int
) -> list[Block]:
    """One block for neighbouring rows of equal heads; rows of unequal heads have a block per segment."""
    blocks: list[Block] = []
    first_of_rows = [s for s, head in enumerate(heads) if head % num_heads == 0]  # and the end of the last row
    for row, (first, end) in enumerate(pairwise(first_of_rows)):
        count, length, stride = end - first, lengths[first], starts[first + 1] - starts[first]
        even = not any(hidden[first:end]) and all(other == length for other in lengths[first:end])
        if even and all(b - a == stride for a, b in pairwise(starts[first:end])):
            last = blocks[-1] if blocks else None
            if (
                last
                and last.heads == num_heads
                and (last.segments, last.stride, last.length) == (count, stride, length)
                and not hidden[last.segment]
                and starts[first] == last.start + last.rows * count * stride
            ):
                last.rows += 1
            else:
                blocks.append(Block(row, 1, 0, num_heads, first, count, starts[first], stride, length))
            continue
        for s in range(first, end):
            head, group = heads[s] - row * num_heads, heads[s + 1] - heads[s]
            blocks.append(Block(row, 1, head, group, s, 1, starts[s], 0, lengths[s]))
    return blocks


def _seen_by_bits(query: Tensor, keys: Tensor, values: Tensor, scaling: Scaling, bits: Tensor, masked: int) -> Tensor:
    """Attention of one segment's query heads [1, group, q, head_dim] over keys, values [1, 1, len, head_dim]."""
    _, group, q, _ = query.shape
    length = keys.shape[2]
    seen = unpack_bits(bits[: group * -(-masked // 8)].view(group, -1), masked)
    seen = F.pad(seen, (0, length - masked), value=True)  # later tokens are visible to all
    if q > 1:
        past = torch.ones(q, length, dtype=torch.bool, device=query.device).tril(length - q)
        seen = (seen[:, None] & past).flatten(0, 1)  # [group · q, len]
    if isinstance(scaling, Softmax):
        return bent_attention(query, keys, values, scaling, seen.unflatten(0, (group, q)))
    out = F.scaled_dot_product_attention(query.flatten(1, 2), keys[0], values[0], attn_mask=seen[None], scale=scaling)
    return out.unflatten(1, (group, q))
