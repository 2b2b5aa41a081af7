"""Quantised caches of heads that hold different numbers of tokens."""

from collections.abc import Sequence
from itertools import accumulate

import torch
from torch import Tensor

from kvbench.cache.base import filled
from kvbench.cache.packed import offsets
from kvbench.cache.quantised.sequence import QuantisedKeys, QuantisedValues
from kvbench.cache.reserve_ratio import Kept
from kvbench.cache.sequence import SequenceLayer
from kvbench.ops.packed_attention import packed_attention
from kvbench.ops.quantise import TOKENS, Quantiser
from kvbench.ops.segments import Segments
from kvbench.ops.softmax import Scaling


class OlderRows:
    """Quantised rows of heads of different lengths, packed; decoding adds nothing to them."""

    def __init__(self, rows: Tensor, counts: Sequence[int], quantiser: Quantiser):
        """rows [sum of counts, head_dim]: the rows of the first head, then the rows of the second …

        If the quantiser groups tokens, a group belongs to one head. An incomplete first group is filled with copies of
        the head's first row, which nothing reads.
        """
        self.quantiser, self.counts = quantiser, list(counts)
        group = quantiser.group if quantiser.axis == TOKENS else 1
        self.sizes = [-(-count // group) * group for count in counts]  # copies included
        if self.sizes != self.counts:
            rows = rows.index_select(0, self._with_copies(rows.device))
        self.parts = quantiser(rows[None])

    def tensors(self) -> list[Tensor]:
        return list(self.parts)

    def read(self) -> Tensor:
        """The rows [sum of sizes, head_dim]."""
        return self.quantiser.restore(*self.parts)[0]

    @property
    def raw_rows(self) -> float:
        """The number of raw rows that would take the same space, analytically."""
        element = 8 * self.parts[1].element_size()
        return float(sum(self.sizes) * self.quantiser.bits_per_element(element) / element)

    def _with_copies(self, device: torch.device) -> Tensor:
        """For each row, copies included, the index of its original."""
        copies = [size - count for size, count in zip(self.sizes, self.counts, strict=True)]
        numbers = torch.tensor([offsets(self.counts), offsets(self.sizes), copies, self.sizes], device=device)
        total = sum(self.sizes)
        starts, places, copies, _ = numbers.repeat_interleave(numbers[3], dim=1, output_size=total)
        return starts + (torch.arange(total, device=device) - places - copies).clamp_(min=0)


class RaggedQuantisedLayer(SequenceLayer):
    """The last m tokens of every head as in `QuantisedLayer`, where m is the shortest head's length; older tokens as
    codes only.

    Attention restores the rows of one layer at a time.
    """

    k: QuantisedKeys
    v: QuantisedValues

    def __init__(
        self,
        keys: QuantisedKeys,
        values: QuantisedValues,
        older: tuple[OlderRows, OlderRows],
        seen: int,
        kept: Kept,
    ):
        """keys, values: of the last m tokens. older: keys and values of the tokens before them."""
        super().__init__(keys, values, keys.heads, seen, kept)
        self.older = older
        self.tables: Tensor | None = None

    def tensors(self) -> list[Tensor]:
        return super().tensors() + [tensor for rows in self.older for tensor in rows.tensors()]

    def index_tables(self) -> list[Tensor]:
        return [] if self.tables is None else [self.tables]

    @property
    def filled_bytes(self) -> int:
        return super().filled_bytes + self._older_bytes

    @property
    def read_bytes(self) -> int:
        return super().read_bytes + self._older_bytes

    @property
    def _older_bytes(self) -> int:
        return filled(*(tensor for rows in self.older for tensor in rows.tensors()))

    def as_dense(self) -> None:
        """None, because heads have different numbers of tokens."""

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        counts, length = self.older[0].counts, self.k.length
        heads, group = len(counts), query.shape[1] // len(counts)
        if self.tables is None:
            self.tables = self._tables(group, query.device)
        numbers = torch.add(*self.tables, alpha=length)
        runs, shifts, starts, lengths, of_heads = numbers.split([2 * heads, 4 * heads, heads + 1, heads, heads + 1])
        slots = torch.arange(sum(counts) + heads * length, dtype=torch.int32, device=query.device)
        run = torch.searchsorted(runs, slots, right=True)
        places = shifts.view(2, -1)[:, run] + slots
        keys, values = (
            torch.cat([older.read(), recent.read().flatten(0, 1)]).index_select(0, rows)
            for older, recent, rows in zip(self.older, (self.k, self.v), places, strict=True)
        )
        segments = Segments(starts, lengths, of_heads, group, max(counts) + length)
        return packed_attention(query, keys, values, segments, scaling)

    def _tables(self, group: int, device: torch.device) -> Tensor:
        """Numbers for each head, int32 [2, …]: their values for m = 0, and their increase for each last token.

        Attention takes rows in runs: older tokens of the first head, its last tokens, older tokens of the second, …
        Rows are stored in another order: all older tokens, then all last tokens. The numbers are the ends of the runs;
        the offset between a run's place in storage and in attention, for keys and for values; the start and the length
        of each head; and its first query head.
        """
        keys, values = self.older
        heads, starts = range(len(keys.counts)), [*offsets(keys.counts), sum(keys.counts)]
        numbers = [(starts[head + 1], head + last) for head in heads for last in (0, 1)]
        for older in (keys, values):
            total, ends = sum(older.sizes), accumulate(older.sizes)
            for head, end in zip(heads, ends, strict=True):
                numbers += [(end - keys.counts[head] - starts[head], -head), (total - starts[head + 1], 0)]
        numbers += [(start, head) for head, start in enumerate(starts)]
        numbers += [(count, 1) for count in keys.counts]
        numbers += [(group * head, 0) for head in range(len(starts))]
        return torch.tensor(numbers, dtype=torch.int32, device=device).T.contiguous()
