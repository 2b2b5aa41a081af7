"""Several sequences decoding as one batch, with caches of different kinds and sizes."""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import Cache

from kvbench.cache.base import AttendingLayer, LayerCache, attend_one_by_one
from kvbench.cache.decode_bytes import DecodeBytes
from kvbench.cache.packed import BLOCK, Packed

Counts = tuple[int, int, int]  # bytes held and read in a step, and those of a sliding window among the held ones


class BatchLayer(AttendingLayer):
    """The caches of one layer, one per sequence, so that a forward pass reads the model's weights once for all.

    All sequences have seen the same number of tokens; each may store any of them. At the first new token, the caches
    that can be packed move into one: they append with one operation and attend with one, whatever their kinds and
    lengths. The others are updated one by one, as a single cache is.
    """

    def __init__(self, rows: Sequence[LayerCache], blocks: Sequence[bool] | None = None):
        """blocks: which rows get several tokens at once, the others one by one; None: those that take blocks."""
        super().__init__()
        self.rows = list(rows)
        self.blocks = [row.takes_blocks for row in rows] if blocks is None else list(blocks)
        self.seen = self.rows[0].seen
        self.packed: Packed | None = None
        self.together: list[int] = []  # rows that are packed
        self.alone = list(range(len(self.rows)))
        self.packs = len(self.rows) > 1
        self.waiting: dict[int, tuple[Tensor, Tensor]] = {}  # new keys and values of rows that get them one by one
        self.before: list[int] = []  # bytes held before the last block of tokens, where rows are packed
        self.counted: list[list[Counts]] = []  # of each row's steps in the last pass: one, or one per token

    def append(self, keys: Tensor, values: Tensor) -> None:
        if self.packs:
            self._pack(room=keys.shape[2] + BLOCK - 1)
        if self.together:
            if keys.shape[2] > 1:
                self.before = [row.filled_bytes for row in self.rows]
            self.packed.append(self._of_packed(keys), self._of_packed(values))
        for row in self.alone:
            new = keys[row : row + 1], values[row : row + 1]
            if self.blocks[row] or keys.shape[2] == 1:
                self.rows[row].update(*new)
            else:
                self.waiting[row] = new

    def attend(self, query: Tensor, scaling: float) -> Tensor:
        self.counted = [self._counts(row, query.shape[2]) for row in range(len(self.rows))]
        if not self.alone:
            return self.packed.attend(query, scaling)
        if len(self.rows) == 1:
            return self._attend_alone(0, query, scaling)
        outputs = {row: self._attend_alone(row, query[row : row + 1], scaling) for row in self.alone}
        if self.together:
            packed = self.packed.attend(self._of_packed(query), scaling)
            outputs |= dict(zip(self.together, packed.split(1), strict=True))
        return torch.cat([outputs[row] for row in range(len(self.rows))])

    def _counts(self, number: int, t: int) -> list[Counts]:
        """Of one step for all t tokens, or of t steps in a row that gets them one by one: also where this layer is
        packed, to which every token adds as much. Those of waiting tokens follow as they are appended."""
        row = self.rows[number]
        if number in self.waiting:
            return []
        if self.blocks[number] or t == 1:
            return [counts(row)]
        first, last = self.before[number], row.filled_bytes
        return [(held, held, 0) for held in range(first + (last - first) // t, last + 1, (last - first) // t)]

    def _attend_alone(self, number: int, query: Tensor, scaling: float) -> Tensor:
        row = self.rows[number]
        if number not in self.waiting:
            return row.attend(query, scaling)
        return attend_one_by_one(
            row, *self.waiting.pop(number), query, scaling, lambda: self.counted[number].append(counts(row))
        )

    def tensors(self) -> list[Tensor]:
        packed = [] if self.packed is None else self.packed.tensors()
        return packed + [tensor for row in self.rows for tensor in row.tensors()]

    @property
    def windowed(self) -> bool:
        return all(row.windowed for row in self.rows)

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these sequences and drop the others."""
        if self.together:
            self.packed.keep([self.together.index(row) for row in rows if row in self.together])
        self.rows, self.blocks = [self.rows[row] for row in rows], [self.blocks[row] for row in rows]
        packed = [row in self.together for row in rows]
        self.together = [row for row, there in enumerate(packed) if there]
        self.alone = [row for row, there in enumerate(packed) if not there]

    def _pack(self, room: int) -> None:
        parts = {row: part for row, cache in enumerate(self.rows) if (part := cache.pack()) is not None}
        self.packs = False
        if not parts:
            return
        self.packed = Packed.joined(list(parts.values()), room)
        self.together, self.alone = list(parts), [row for row in self.alone if row not in parts]
        for row, place in zip(self.together, self.packed.rows, strict=True):
            self.rows[row].packed_row = place

    def _of_packed(self, x: Tensor) -> Tensor:
        return x if not self.alone else torch.cat([x[row : row + 1] for row in self.together])


def counts(cache: LayerCache) -> Counts:
    return cache.filled_bytes, cache.read_bytes, cache.filled_bytes if cache.windowed else 0


class BatchCache(Cache):
    """The layers of a batch, and in `sequences` what the caches of each sequence hold and read from now on."""

    def __init__(self, sequences: Sequence[Sequence[LayerCache]]):
        blocks = [all(cache.takes_blocks for cache in caches) for caches in sequences]
        super().__init__(layers=[BatchLayer(rows, blocks) for rows in zip(*sequences, strict=True)])
        self.sequences = [DecodeBytes(sum(cache.filled_bytes for cache in caches)) for caches in sequences]

    def count(self, tokens: int) -> None:
        """Count the pass over `tokens` tokens that has just been made: one step, in some sequences one per token."""
        by_sequence = zip(*(layer.counted for layer in self.layers), strict=True)
        for sequence, layers in zip(self.sequences, by_sequence, strict=True):
            for step in zip(*layers, strict=True):
                sequence.add(tokens // len(layers[0]), *map(sum, zip(*step, strict=True)))

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these sequences and drop the others."""
        for layer in self.layers:
            layer.keep(rows)
        self.sequences = [self.sequences[row] for row in rows]
