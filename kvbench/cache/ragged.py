"""Ragged caches: each head keeps different tokens and a different number of them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kvbench.cache.packed import Packed, PackedRow, Segment, flat_positions, offsets
from kvbench.cache.reserve_ratio import Kept


class RaggedLayer(Packed):
    """The chosen tokens of each head, packed: keys (after RoPE) and values."""

    def __init__(
        self,
        keys: Tensor,
        values: Tensor,
        chosen: Tensor,
        seen: int,
        kept: Kept,
        lengths: Sequence[int] | None = None,
        group_bits: Tensor | None = None,
    ):
        """keys, values [num_key_value_heads, n, head_dim].

        chosen: bool [heads, n], the tokens that each head keeps. heads is num_key_value_heads, or num_attention_heads
        if every query head stores copies. lengths: tokens of each head; None: they are read from the device, with one
        wait. group_bits: bool [heads, group, n], which query heads of a group see a token.
        """
        heads, n = chosen.shape
        lengths = chosen.sum(dim=1).tolist() if lengths is None else lengths
        tokens = flat_positions(chosen.flatten(), sum(lengths))  # [total] in [0, heads · n)
        source = tokens
        if heads > len(keys):
            source = tokens // n // (heads // len(keys)) * n + tokens % n
        segments = [Segment(start, length) for start, length in zip(offsets(lengths), lengths, strict=True)]
        row = PackedRow(segments, kept)
        bits = None if group_bits is None else _with_bits(row, group_bits, tokens)
        super().__init__(keys.flatten(0, 1)[source], values.flatten(0, 1)[source], [row], seen, bits)


class UnionLayer(RaggedLayer):
    """The union of the kept tokens of each KV head's query heads, and one bit per query head and prompt token.

    Attention gives the output of the unfolded cache, but each token of the union is stored once.
    """

    def __init__(
        self,
        keys: Tensor,
        values: Tensor,
        chosen: Tensor,
        seen: int,
        kept: Kept,
        lengths: Sequence[int] | None = None,
    ):
        """chosen: bool [num_key_value_heads, group, n], the tokens of each query head; lengths: sizes of the unions."""
        super().__init__(keys, values, chosen.any(dim=1), seen, kept, lengths, chosen)


def _with_bits(row: PackedRow, group_bits: Tensor, tokens: Tensor) -> Tensor:
    """The bits of tokens [total], indices in [0, heads · n), from group_bits [heads, group, n]; `row` gets places."""
    _, group, n = group_bits.shape
    strides = [-(-segment.length // 8) for segment in row.segments]
    first = offsets([group * stride for stride in strides])
    for segment, stride, start in zip(row.segments, strides, first, strict=True):
        segment.masked, segment.bits, segment.bit_bytes = segment.length, start, group * stride
    numbers = [[s.start for s in row.segments], [s.bits for s in row.segments], strides]
    starts, begins, widths = torch.tensor(numbers, device=tokens.device)
    head = tokens // n
    place = torch.arange(len(tokens), device=tokens.device) - starts[head]  # within the segment
    seen = group_bits.transpose(1, 2).flatten(0, 1)[tokens]  # [total, group]
    within = torch.arange(group, device=tokens.device) * widths[head][:, None]
    byte = (begins[head] + place // 8)[:, None] + within  # [total, group]
    bits = torch.zeros(sum(s.bit_bytes for s in row.segments), dtype=torch.int32, device=tokens.device)
    return bits.scatter_add_(0, byte.flatten(), (seen.int() << (place % 8)[:, None].int()).flatten()).to(torch.uint8)
