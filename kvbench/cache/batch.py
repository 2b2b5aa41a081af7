"""Several sequences decoding as one batch, with caches of different kinds and sizes."""

from collections.abc import Sequence

import torch
from torch import Tensor
from transformers import Cache

from kvbench.cache.base import AttendingLayer, LayerCache
from kvbench.cache.decode_bytes import DecodeBytes
from kvbench.cache.packed import BLOCK, Packed


class BatchLayer(AttendingLayer):
    """The caches of one layer, one per sequence, so that a forward pass reads the model's weights once for all.

    All sequences have seen the same number of tokens; each may store any of them. At the first new token, the caches
    that can be packed move into one: they append with one operation and attend with one, whatever their kinds and
    lengths. The others are updated one by one, as a single cache is.
    """

    def __init__(self, rows: Sequence[LayerCache]):
        super().__init__()
        self.rows = list(rows)
        self.seen = self.rows[0].seen
        self.packed: Packed | None = None
        self.together: list[int] = []  # rows that are packed
        self.alone = list(range(len(self.rows)))
        self.packs = len(self.rows) > 1
        # bytes that each row held and read in the last pass, and those of a sliding window among the held ones
        self.counted: list[tuple[int, int, int]] = []

    def append(self, keys: Tensor, values: Tensor) -> None:
        if self.packs:
            self._pack(room=keys.shape[2] + BLOCK - 1)
        if self.together:
            self.packed.append(self._of_packed(keys), self._of_packed(values))
        for row in self.alone:
            self.rows[row].update(keys[row : row + 1], values[row : row + 1])

    def attend(self, query: Tensor, scaling: float) -> Tensor:
        self.counted = [
            (row.filled_bytes, row.read_bytes, row.filled_bytes if row.windowed else 0) for row in self.rows
        ]
        if not self.alone:
            return self.packed.attend(query, scaling)
        if len(self.rows) == 1:
            return self.rows[0].attend(query, scaling)
        outputs = {row: self.rows[row].attend(query[row : row + 1], scaling) for row in self.alone}
        if self.together:
            packed = self.packed.attend(self._of_packed(query), scaling)
            outputs |= dict(zip(self.together, packed.split(1), strict=True))
        return torch.cat([outputs[row] for row in range(len(self.rows))])

    def tensors(self) -> list[Tensor]:
        packed = [] if self.packed is None else self.packed.tensors()
        return packed + [tensor for row in self.rows for tensor in row.tensors()]

    @property
    def windowed(self) -> bool:
        return all(row.windowed for row in self.rows)

    @property
    def takes_blocks(self) -> bool:
        return all(row.takes_blocks for row in self.rows)

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these sequences and drop the others."""
        if self.together:
            self.packed.keep([self.together.index(row) for row in rows if row in self.together])
        self.rows = [self.rows[row] for row in rows]
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


class BatchCache(Cache):
    """The layers of a batch, and in `sequences` what the caches of each sequence hold and read from now on."""

    def __init__(self, sequences: Sequence[Sequence[LayerCache]]):
        super().__init__(layers=[BatchLayer(rows) for rows in zip(*sequences, strict=True)])
        self.sequences = [DecodeBytes(sum(cache.filled_bytes for cache in caches)) for caches in sequences]

    def count(self, tokens: int) -> None:
        """Count the pass over `tokens` tokens that has just been made."""
        by_sequence = zip(*(layer.counted for layer in self.layers), strict=True)
        for sequence, layers in zip(self.sequences, by_sequence, strict=True):
            sequence.add(tokens, *map(sum, zip(*layers, strict=True)))

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these sequences and drop the others."""
        for layer in self.layers:
            layer.keep(rows)
        self.sequences = [self.sequences[row] for row in rows]
