"""Several sequences decoding as one batch, with caches of different kinds and sizes."""

from collections.abc import Sequence
from typing import NamedTuple

from torch import Tensor
from transformers import Cache

from kvbench.cache.base import LayerCache, NoCache, Row, StoredLayer
from kvbench.cache.batch_layer import BatchLayer
from kvbench.cache.decode_bytes import DecodeBytes
from kvbench.cache.linear_state import LinearState
from kvbench.cache.rows import RowsLayer


class HostCounts(NamedTuple):
    """What the host counts of a batch while it decodes."""

    seen: int
    ahead: list[list[int]]  # of each part of each layer
    passes: list[int]  # of each sequence


class BatchCache(Cache):
    """The layers of a batch, and in `sequences` what the caches of each sequence hold and read from now on.

    Caches that are joined are replaced in the lists of their sequences: see `BatchLayer`.
    """

    def __init__(self, sequences: Sequence[list[StoredLayer]]):
        blocks = [all(cache.takes_blocks for cache in caches) for caches in sequences]
        super().__init__(layers=[_layer_of(sequences, number, blocks) for number in range(len(sequences[0]))])
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
        """Room for these tokens at once, in all caches that can have it: see `BatchLayer.make_room`."""
        for layer in self.attending:
            layer.make_room(tokens)

    @property
    def joinable(self) -> list[RowsLayer]:
        """Those of all layers."""
        return [cache for layer in self.attending for cache in layer.joinable]

    @property
    def room(self) -> int:
        """How many more tokens every cache that can have room has room for."""
        return min((cache.room for cache in self.joinable), default=0)

    @property
    def moves(self) -> list[int]:
        """Another one after tensors of a cache have been replaced: see `RowsLayer.moves`."""
        return [cache.moves for cache in self.joinable]

    @property
    def ahead(self) -> int:
        """How many more tokens a repeated step can append to every sequence: see `RowsLayer.ahead`."""
        ahead: int = min(layer.ahead for layer in self.attending)
        return ahead

    @property
    def fuses(self) -> bool:
        """Whether the layers of a model can be compiled over these caches: see `RowsLayer.fuses`.

        Not those of a hybrid model, nor those that attend to another layer's keys and values.
        """
        if self.states or any(layer.readers for layer in self.attending):
            return False
        return all(cache.fuses for cache in self.joinable)

    def make_way(self) -> None:
        """What has to be done before a step is recorded or repeated: see `RowsLayer.make_way`."""
        for cache in self.joinable:
            cache.make_way()

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


def _layer_of(
    sequences: Sequence[list[StoredLayer]], number: int, blocks: Sequence[bool]
) -> BatchLayer | LinearState | NoCache:
    """Layer `number` of all sequences."""
    rows = [caches[number] for caches in sequences]
    if isinstance(rows[0], LayerCache):
        return BatchLayer(sequences, number, blocks)
    states = [row for row in rows if isinstance(row, LinearState)]
    if not states:
        return NoCache()
    if len(states) == 1:
        return states[0]
    for caches, state in zip(sequences, states, strict=True):
        caches[number] = Row(None, state.nbytes, state.filled_bytes, fixed=True)
    return LinearState.joined(states)
