"""One layer of several sequences that decode as a batch, with caches of different kinds and sizes."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import torch
from torch import Tensor

from kvbench.cache.base import BLOCK, LayerCache, StoredLayer
from kvbench.cache.rows import RowsLayer
from kvbench.models.attending_layer import AttendingLayer, attend_one_by_one
from kvbench.ops.softmax import Scaling

Counts = tuple[int, int, int]  # bytes held and read in a step, and bytes held in layers of fixed size


class Part:
    """The rows of a batch that share one cache."""

    def __init__(self, cache: LayerCache, rows: list[int], blocks: bool):
        """blocks: whether the part gets several tokens at once; otherwise one after the other."""
        self.cache, self.rows, self.blocks = cache, rows, blocks
        self.waiting: tuple[Tensor, Tensor] | None = None  # keys and values to append one by one

    def rows_of(self, x: Tensor) -> Tensor:
        """The part's rows of x [rows of the batch, …]."""
        if len(self.rows) == x.shape[0]:
            return x
        parts = [x[row : row + 1] for row in self.rows]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def append(self, keys: Tensor, values: Tensor) -> None:
        if self.blocks or keys.shape[2] == 1:
            self.cache.take(keys, values)
        else:
            self.waiting = keys, values

    def attend(self, query: Tensor, scaling: Scaling, appended: Callable[[], object]) -> Tensor:
        """`appended` is called after each token of a block that is appended one by one."""
        if self.waiting is None:
            return self.cache.attend(query, scaling)
        (keys, values), self.waiting = self.waiting, None
        return attend_one_by_one(self.cache, keys, values, query, scaling, appended)

    def reread(self, query: Tensor, scaling: Scaling) -> Tensor:
        return self.cache.reread(query, scaling)

    def keep(self, rows: Sequence[int]) -> "Part | None":
        """The part with only `rows` of the batch, which become rows 0, 1, …; None if it has none of them."""
        kept = [place for place, row in enumerate(self.rows) if row in rows]
        if 0 < len(kept) < len(self.rows):
            self.cache.keep(kept)
        self.rows = [rows.index(self.rows[place]) for place in kept]
        return self if kept else None


class BatchLayer(AttendingLayer):
    """The caches of one layer, one per sequence, so that a forward pass reads the model's weights once for all.

    All sequences have seen the same number of tokens; each may store any of them. At the first new token, caches of one
    kind are joined: one operation appends to all of them and one operation attends, whatever their lengths. In the list
    of each sequence's caches a `Row`, which counts the sequence's bytes, replaces the joined cache. Other caches are
    updated one by one.
    """

    def __init__(self, sequences: Sequence[list[Any]], number: int = 0, blocks: Sequence[bool] | None = None):
        """The caches `number` of `sequences`, the lists of all layers' caches.

        blocks: which rows get several tokens at once; other rows get them one by one. None: rows that take blocks.
        """
        super().__init__()
        caches: list[LayerCache] = [layers[number] for layers in sequences]
        self.sequences, self.number = list(sequences), number
        self.rows: list[StoredLayer] = list(caches)
        self.readers, self.seen = caches[0].readers, caches[0].seen
        self.latent = caches[0].latent
        self.blocks = [cache.takes_blocks for cache in caches] if blocks is None else list(blocks)
        self.parts = [Part(cache, [row], self.blocks[row]) for row, cache in enumerate(caches)]
        self.joined = False  # whether `_join` has joined caches
        self.before: list[int] = []  # bytes held before the last block of tokens
        self.counted: list[list[Counts]] = []  # counts of each row in the last pass: of one step, or of one per token

    def append(self, keys: Tensor, values: Tensor) -> None:
        if len(self.rows) > 1 and not self.joined:
            self._join(room=keys.shape[2] + BLOCK - 1)
        if keys.shape[2] > 1:
            self.before = [row.filled_bytes for row in self.rows]
        for part in self.parts:
            part.append(part.rows_of(keys), part.rows_of(values))

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        if query.shape[2] == 1:  # no token waits; this runs for every layer and token, so the host's time matters
            self.counted = [[counts(row)] for row in self.rows]
            if len(self.parts) == 1:
                return self.parts[0].cache.attend(query, scaling)
            return self._in_order([part.cache.attend(part.rows_of(query), scaling) for part in self.parts])
        self.counted = [[] for _ in self.rows]
        for part in self.parts:
            if part.waiting is None:
                for row in part.rows:
                    self.counted[row] = self._counts(row, query.shape[2])
        return self._in_order(
            [part.attend(part.rows_of(query), scaling, partial(self._count, part)) for part in self.parts]
        )

    def reread(self, query: Tensor, scaling: Scaling) -> Tensor:
        return self._in_order([part.reread(part.rows_of(query), scaling) for part in self.parts])

    def write(self, keys: Tensor, values: Tensor) -> None:
        """The device's part of `append` for one token, with `ahead` in all caches. `advance` is the host's part."""
        for part in self.parts:
            part.cache.write(self._of(part, keys), self._of(part, values))

    def attended(self, query: Tensor, scaling: Scaling) -> Tensor:
        """The device's part of `attend`, after `write`."""
        return self._in_order([part.cache.attend(self._of(part, query), scaling) for part in self.parts])

    def _of(self, part: Part, x: Tensor) -> Tensor:
        """`part.rows_of(x)`; x itself if there is one part, so that one compilation serves any number of rows."""
        return x if len(self.parts) == 1 else part.rows_of(x)

    def _in_order(self, outputs: list[Tensor]) -> Tensor:
        """The outputs of the parts in the order of the rows."""
        if len(outputs) == 1:
            return outputs[0]
        order = [row for part in self.parts for row in part.rows]
        of_rows = dict(zip(order, (row for out in outputs for row in out.split(1)), strict=True))
        return torch.cat([of_rows[row] for row in range(len(self.rows))])

    def _count(self, part: Part) -> None:
        """Count a step of rows that get their tokens one by one."""
        for row in part.rows:
            self.counted[row].append(counts(self.rows[row]))

    def _counts(self, number: int, t: int) -> list[Counts]:
        """The counts of one step for all t tokens; or of t steps, for a sequence that counts its tokens one by one
        although its joined cache takes them at once. Every token adds the same number of bytes."""
        row = self.rows[number]
        if self.blocks[number] or t == 1:
            return [counts(row)]
        before = self.before[number]
        token, rest = divmod(row.filled_bytes - before, t)
        assert token and not rest, "every token adds the same number of bytes"
        return [(before + token * step, before + token * step, 0) for step in range(1, t + 1)]

    def tensors(self) -> list[Tensor]:
        return [tensor for part in self.parts for tensor in part.cache.tensors()]

    @property
    def joinable(self) -> list[RowsLayer]:
        """The caches that can hold several rows."""
        return [part.cache for part in self.parts if isinstance(part.cache, RowsLayer)]

    @property
    def stacked(self) -> bool:
        """Whether one operation attends for all rows of a batch."""
        return self.joined and len(self.parts) == len(self.joinable) == 1

    @property
    def absorbs(self) -> bool:
        return self.latent

    @property
    def windowed(self) -> bool:
        return all(part.cache.windowed for part in self.parts)

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these sequences and drop the others."""
        self.sequences = [self.sequences[row] for row in rows]
        self.rows, self.blocks = [self.rows[row] for row in rows], [self.blocks[row] for row in rows]
        self.parts = [kept for part in self.parts if (kept := part.keep(rows))]

    def make_room(self, tokens: int) -> None:
        """Join all caches that can be joined, even a single one, with room for these tokens where possible."""
        if not self.joined:
            self._join(tokens)
        for cache in self.joinable:
            cache.make_room(tokens)

    @property
    def ahead(self) -> int:
        """The smallest `RowsLayer.ahead`; 0 if a cache is not a `RowsLayer`."""
        return min(part.cache.ahead if isinstance(part.cache, RowsLayer) else 0 for part in self.parts)

    def advance(self, tokens: int) -> None:
        """Count the tokens that repeated steps have appended."""
        for part in self.parts:
            part.cache.advance(tokens)
        self.seen += tokens
        self.counted = [self._counts(row, 1) for row in range(len(self.rows))]

    @property
    def takes_back(self) -> bool:
        return all(isinstance(part.cache, RowsLayer) and part.cache.takes_back for part in self.parts)

    def take_back(self, tokens: Sequence[int]) -> None:
        """Remove the last tokens of each row, which were appended one by one."""
        for part in self.parts:
            for place, row in enumerate(part.rows):
                if tokens[row]:
                    part.cache.take_back(place, tokens[row])
        self.seen -= min(tokens)

    def _join(self, room: int) -> None:
        """Make one cache of all caches of a kind, with room for tokens where possible."""
        self.joined = True
        kinds: list[dict[int, RowsLayer]] = []  # caches that can be joined, by their rows
        parts, self.parts = self.parts, []
        for part in parts:
            (row,) = part.rows
            cache = part.cache.for_batch()
            if not isinstance(cache, RowsLayer):
                self.parts.append(part)
                continue
            kind = next((kind for kind in kinds if next(iter(kind.values())).joins(cache)), None)
            if kind is None:
                kinds.append({row: cache})
            else:
                kind[row] = cache
        for kind in kinds:
            first, *others = kind.values()
            joined = first.joined(others, room)
            self.parts.append(Part(joined, list(kind), joined.takes_blocks))
            if joined is not self.rows[next(iter(kind))]:
                for row, place in zip(kind, joined.rows, strict=True):
                    self.rows[row] = self.sequences[row][self.number] = place


def counts(cache: StoredLayer) -> Counts:
    return cache.filled_bytes, cache.read_bytes, cache.filled_bytes if cache.fixed else 0
