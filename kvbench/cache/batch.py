"""Several sequences decoding as one batch, with caches of different kinds and sizes."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import Tensor
from transformers import Cache

from kvbench.cache.base import AttendingLayer, LayerCache, NoCache, StoredLayer, attend_one_by_one
from kvbench.cache.decode_bytes import DecodeBytes
from kvbench.cache.linear_state import LinearState
from kvbench.cache.pack import Pack
from kvbench.cache.packed import BLOCK
from kvbench.ops.softmax import Scaling

Counts = tuple[int, int, int]  # bytes held and read in a step, and those of fixed size among the held ones


class Part:
    """The rows of a batch that one cache answers: a pack of several, or the row's own cache."""

    def __init__(self, cache: LayerCache | Pack[Any], rows: list[int], blocks: bool):
        """blocks: whether it gets several tokens at once, or one after the other."""
        self.cache, self.rows, self.blocks = cache, rows, blocks
        self.waiting: tuple[Tensor, Tensor] | None = None  # new keys and values of a part that gets them one by one

    def of(self, x: Tensor) -> Tensor:
        """The part's rows of x [rows of the batch, …]."""
        if len(self.rows) == x.shape[0]:
            return x
        parts = [x[row : row + 1] for row in self.rows]
        return parts[0] if len(parts) == 1 else torch.cat(parts)

    def append(self, keys: Tensor, values: Tensor) -> None:
        if self.blocks or keys.shape[2] == 1:
            self.cache.update(keys, values)
        else:
            self.waiting = keys, values

    def attend(self, query: Tensor, scaling: Scaling, appended: Callable[[], object]) -> Tensor:
        """`appended` is called after every token of those that waited."""
        if self.waiting is None:
            return self.cache.attend(query, scaling)
        (keys, values), self.waiting = self.waiting, None
        return attend_one_by_one(self.cache, keys, values, query, scaling, appended)

    def reread(self, query: Tensor, scaling: Scaling) -> Tensor:
        return self.cache.reread(query, scaling)

    def keep(self, rows: Sequence[int]) -> "Part | None":
        """The part without the other rows of the batch, where `rows` are now 0, 1, …; None without any row."""
        kept = [place for place, row in enumerate(self.rows) if row in rows]
        if isinstance(self.cache, Pack) and 0 < len(kept) < len(self.rows):
            self.cache.keep(kept)
        self.rows = [rows.index(self.rows[place]) for place in kept]
        return self if kept else None


class BatchLayer(AttendingLayer):
    """The caches of one layer, one per sequence, so that a forward pass reads the model's weights once for all.

    All sequences have seen the same number of tokens; each may store any of them. At the first new token, caches of a
    kind that can be packed move into one: they append with one operation and attend with one, whatever their lengths.
    The others are updated one by one, as a single cache is.
    """

    def __init__(self, rows: Sequence[LayerCache], blocks: Sequence[bool] | None = None):
        """blocks: which rows get several tokens at once, the others one by one; None: those that take blocks."""
        super().__init__()
        self.rows = list(rows)
        self.readers = rows[0].readers
        self.blocks = [row.takes_blocks for row in rows] if blocks is None else list(blocks)
        self.seen = self.rows[0].seen
        self.parts = [Part(cache, [row], self.blocks[row]) for row, cache in enumerate(self.rows)]
        self.packed = False  # what can be packed has been
        self.before: list[int] = []  # bytes held before the last block of tokens
        self.counted: list[list[Counts]] = []  # of each row's steps in the last pass: one, or one per token

    def append(self, keys: Tensor, values: Tensor) -> None:
        if len(self.rows) > 1 and not self.packed:
            self._pack(room=keys.shape[2] + BLOCK - 1)
        if keys.shape[2] > 1:
            self.before = [row.filled_bytes for row in self.rows]
        for part in self.parts:
            part.append(part.of(keys), part.of(values))

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        if query.shape[2] == 1:  # nothing waits, and the host's time counts: this runs for every layer and token
            self.counted = [[counts(row)] for row in self.rows]
            if len(self.parts) == 1:
                return self.parts[0].cache.attend(query, scaling)
            return self._in_order([part.cache.attend(part.of(query), scaling) for part in self.parts])
        self.counted = [[] for _ in self.rows]
        for part in self.parts:
            if part.waiting is None:
                for row in part.rows:
                    self.counted[row] = self._counts(row, query.shape[2])
        return self._in_order([part.attend(part.of(query), scaling, partial(self._count, part)) for part in self.parts])

    def reread(self, query: Tensor, scaling: Scaling) -> Tensor:
        return self._in_order([part.reread(part.of(query), scaling) for part in self.parts])

    def write(self, keys: Tensor, values: Tensor) -> None:
        """The device's part of `append`, of one token that all caches have `ahead`. `advance` is the host's."""
        for part in self.parts:
            part.cache.write(self._of(part, keys), self._of(part, values))

    def attended(self, query: Tensor, scaling: Scaling) -> Tensor:
        """The device's part of `attend`, after `write`."""
        return self._in_order([part.cache.attend(self._of(part, query), scaling) for part in self.parts])

    def _of(self, part: Part, x: Tensor) -> Tensor:
        """`part.of(x)`; of the only part without counting its rows, so that one compilation is for any number."""
        return x if len(self.parts) == 1 else part.of(x)

    def _in_order(self, outputs: list[Tensor]) -> Tensor:
        """The outputs of the parts in the order of the rows."""
        if len(outputs) == 1:
            return outputs[0]
        order = [row for part in self.parts for row in part.rows]
        of_rows = dict(zip(order, (one for out in outputs for one in out.split(1)), strict=True))
        return torch.cat([of_rows[row] for row in range(len(self.rows))])

    def _count(self, part: Part) -> None:
        """Count a step of rows that get their tokens one by one."""
        for row in part.rows:
            self.counted[row].append(counts(self.rows[row]))

    def _counts(self, number: int, t: int) -> list[Counts]:
        """Of one step for all t tokens, or of t steps in a row of a sequence that gets them one by one but in whose
        cache here they are at once: every token adds as much."""
        row = self.rows[number]
        if self.blocks[number] or t == 1:
            return [counts(row)]
        first, last = self.before[number], row.filled_bytes
        return [(held, held, 0) for held in range(first + (last - first) // t, last + 1, (last - first) // t)]

    @property
    def packs(self) -> list[Pack[Any]]:
        return [part.cache for part in self.parts if isinstance(part.cache, Pack)]

    def tensors(self) -> list[Tensor]:
        packed = [tensor for pack in self.packs for tensor in pack.tensors()]
        return packed + [tensor for row in self.rows for tensor in row.tensors()]

    @property
    def stacked(self) -> bool:
        """Whether one operation attends for all rows of a batch."""
        return len(self.parts) == 1 and isinstance(self.parts[0].cache, Pack)

    @property
    def windowed(self) -> bool:
        return all(row.windowed for row in self.rows)

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these sequences and drop the others."""
        self.rows, self.blocks = [self.rows[row] for row in rows], [self.blocks[row] for row in rows]
        self.parts = [kept for part in self.parts if (kept := part.keep(rows))]

    def make_room(self, tokens: int) -> None:
        """Move what can be packed into packs, a single row too, with room for these tokens where that is possible."""
        if not self.packed:
            self._pack(tokens)
        for pack in self.packs:
            pack.make_room(tokens)

    @property
    def ahead(self) -> int:
        """See `Pack.ahead`; 0 where a row decodes in a cache of its own."""
        return min(part.cache.ahead if isinstance(part.cache, Pack) else 0 for part in self.parts)

    def advance(self, tokens: int) -> None:
        """Count the tokens that repeated steps have appended."""
        for part in self.parts:
            part.cache.advance(tokens)
        self.seen += tokens
        self.counted = [self._counts(row, 1) for row in range(len(self.rows))]

    @property
    def takes_back(self) -> bool:
        return all(isinstance(part.cache, Pack) and part.cache.takes_back for part in self.parts)

    def take_back(self, tokens: Sequence[int]) -> None:
        """Take back the last tokens of each row, so many as appended one by one."""
        for part in self.parts:
            for place, row in enumerate(part.rows):
                if tokens[row]:
                    part.cache.take_back(place, tokens[row])
        self.seen -= min(tokens)

    def _pack(self, room: int) -> None:
        self.packed = True
        kinds: list[dict[int, Pack[Any]]] = []  # packs that can be joined, each with its row
        alone = []
        for row, cache in enumerate(self.rows):
            pack = cache.pack()
            kind = next((kind for kind in kinds if pack and next(iter(kind.values())).joins(pack)), None)
            if pack is None:
                alone.append(row)
            elif kind is None:
                kinds.append({row: pack})
            else:
                kind[row] = pack
        self.parts = [part for part in self.parts if part.rows[0] in alone]
        for kind in kinds:
            packs = list(kind.values())
            joined = type(packs[0]).joined(packs, room)
            for row, place in zip(kind, joined.rows, strict=True):
                self.rows[row].packed_row = place
            self.parts.append(Part(joined, list(kind), joined.takes_blocks))


def counts(cache: LayerCache) -> Counts:
    return cache.filled_bytes, cache.read_bytes, cache.filled_bytes if cache.fixed else 0


class HostCounts(NamedTuple):
    """What the host counts of a batch while it decodes."""

    seen: int
    ahead: list[list[int]]  # of each part of each layer
    passes: list[int]  # of each sequence


class BatchCache(Cache):
    """The layers of a batch, and in `sequences` what the caches of each sequence hold and read from now on."""

    def __init__(self, sequences: Sequence[Sequence[StoredLayer]]):
        blocks = [all(cache.takes_blocks for cache in caches) for caches in sequences]
        super().__init__(layers=[_layer_of(rows, blocks) for rows in zip(*sequences, strict=True)])
        self.attending = [layer for layer in self.layers if isinstance(layer, BatchLayer)]
        self.states = [layer for layer in self.layers if isinstance(layer, LinearState)]
        self.sequences = [DecodeBytes(sum(cache.filled_bytes for cache in caches)) for caches in sequences]
        self.ended: set[int] = set()  # rows whose sequence has ended, and that are still here
        # whether tokens are read one by one: a later layer cannot attend to what an earlier token left
        self.token_by_token = not all(blocks) and any(layer.readers for layer in self.attending)

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: object, **kwargs: object
    ) -> tuple[BatchLayer, BatchLayer]:
        """Append one layer's new tokens; the layer, which attends, stands for keys and values."""
        layer: BatchLayer = self.layers[layer_idx]
        return layer.update(key_states, value_states)

    def count(self, tokens: int) -> None:
        """Count the pass over `tokens` tokens that has just been made: one step, in some sequences one per token."""
        by_sequence = zip(*(layer.counted for layer in self.attending), strict=True)
        states = sum(state.filled_bytes for state in self.states) // len(self.sequences)
        for row, (sequence, layers) in enumerate(zip(self.sequences, by_sequence, strict=True)):
            if row in self.ended:
                continue
            for step in zip(*layers, strict=True):
                sums = map(sum, zip(*step, strict=True))
                sequence.add(tokens // len(layers[0]), *(counted + states for counted in sums))

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these sequences and drop the others."""
        for layer in self.attending:
            layer.keep(rows)
        for state in self.states:
            state.keep(rows)
        self.sequences = [self.sequences[row] for row in rows]
        self.ended = {place for place, row in enumerate(rows) if row in self.ended}

    def make_room(self, tokens: int) -> None:
        """Room for these tokens at once, in all layers that can be packed: see `BatchLayer.make_room`."""
        for layer in self.attending:
            layer.make_room(tokens)

    @property
    def room(self) -> int:
        """How many more tokens every pack has room for."""
        return min((pack.room for layer in self.attending for pack in layer.packs), default=0)

    @property
    def moves(self) -> list[int]:
        """Another one after tensors of a pack have been replaced: see `Pack.moves`."""
        return [pack.moves for layer in self.attending for pack in layer.packs]

    @property
    def ahead(self) -> int:
        """How many more tokens a repeated step can append to every sequence: see `Pack.ahead`."""
        ahead: int = min(layer.ahead for layer in self.attending)
        return ahead

    @property
    def fuses(self) -> bool:
        """Whether the layers of a model can be compiled over these caches: see `Pack.fuses`.

        Not those of a hybrid model, nor those that attend to another layer's keys and values.
        """
        if self.states or any(layer.readers for layer in self.attending):
            return False
        return all(pack.fuses for layer in self.attending for pack in layer.packs)

    def make_way(self) -> None:
        """What has to be done before a step is recorded or repeated: see `Pack.make_way`."""
        for layer in self.attending:
            for pack in layer.packs:
                pack.make_way()

    def advance(self) -> None:
        """Count the step that has just been repeated."""
        for layer in self.attending:
            layer.advance(1)
        self.count(1)

    def counted(self) -> HostCounts:
        """What the host counts of a batch whose parts have all tokens `ahead`."""
        ahead = [[part.cache.ahead for part in layer.parts] for layer in self.attending]
        return HostCounts(self.get_seq_length(), ahead, [sequence.passes for sequence in self.sequences])

    def restore(self, before: HostCounts) -> None:
        """Count as before a step that was given up, of which the device did nothing."""
        for layer, ahead in zip(self.attending, before.ahead, strict=True):
            for part, tokens in zip(layer.parts, ahead, strict=True):
                part.cache.advance(part.cache.ahead - tokens)
            layer.seen = before.seen
        for sequence, passes in zip(self.sequences, before.passes, strict=True):
            sequence.take_back(sequence.passes - passes)

    @property
    def takes_back(self) -> bool:
        """Whether the last tokens of a sequence can be taken back, as if they had never come: not from a state."""
        return not self.states and all(layer.takes_back for layer in self.attending)

    def take_back(self, tokens: Sequence[int]) -> None:
        """Take back the last tokens of each sequence, those after its end, before the host knew of it. A cache of which
        several sequences differ in that can be read on by none of them."""
        for layer in self.attending:
            layer.take_back(tokens)

    def end(self, row: int, passes: int) -> None:
        """A sequence has ended `passes` passes ago: neither those nor later ones count for it."""
        self.sequences[row].take_back(passes)
        self.ended.add(row)


def _layer_of(rows: Sequence[StoredLayer], blocks: Sequence[bool]) -> BatchLayer | LinearState | NoCache:
    """One layer of all sequences."""
    states = [row for row in rows if isinstance(row, LinearState)]
    if states:
        return states[0] if len(states) == 1 else LinearState.joined(states)
    attending = [row for row in rows if isinstance(row, LayerCache)]
    return BatchLayer(attending, blocks) if attending else NoCache()
