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
    """The counts of a batch that the host keeps while it decodes."""

    seen: int
    ahead: list[list[int]]  # `RowsLayer.ahead` of each part of each layer
    passes: list[int]  # passes of each sequence


class BatchCache(Cache):
    """The layers of a batch. `sequences` counts the bytes that each sequence's caches hold and read while decoding.

    In the list of a sequence a `Row` replaces each joined cache: see `BatchLayer`.
    """

    def __init__(self, sequences: Sequence[list[StoredLayer]]):
        blocks = [all(cache.takes_blocks for cache in caches) for caches in sequences]
        super().__init__(layers=[_layer_of(sequences, number, blocks) for number in range(len(sequences[0]))])
        self.attending = [layer for layer in self.layers if isinstance(layer, BatchLayer)]
        self.states = [layer for layer in self.layers if isinstance(layer, LinearState)]
        self.sequences = [DecodeBytes(sum(cache.filled_bytes for cache in caches)) for caches in sequences]
        self.ended: set[int] = set()  # rows whose sequence has ended and whose later tokens are still in the caches
        # whether tokens are read one by one: a layer that reads an earlier layer's cache needs its state at each token
        self.token_by_token = not all(blocks) and any(layer.readers for layer in self.attending)

    def update(
        self, key_states: Tensor, value_states: Tensor, layer_idx: int, *args: object, **kwargs: object
    ) -> tuple[BatchLayer, BatchLayer]:
        """Append one layer's new tokens. The returned layer, which attends, takes the place of keys and values."""
        layer: BatchLayer = self.layers[layer_idx]
        return layer.update(key_states, value_states)

    def count(self, tokens: int) -> None:
        """Count the last pass, over `tokens` tokens: as one step, or in some sequences as one step per token."""
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

    def make_room(self, tokens: int) -> None:
        """Make room for these tokens in all caches that can have room: see `BatchLayer.make_room`."""
        for layer in self.attending:
            layer.make_room(tokens)

    @property
    def joinable(self) -> list[RowsLayer]:
        """The joinable caches of all layers."""
        return [cache for layer in self.attending for cache in layer.joinable]

    @property
    def room(self) -> int:
        """Tokens that fit in the room of every cache that can have room."""
        return min((cache.room for cache in self.joinable), default=0)

    @property
    def moves(self) -> list[int]:
        """`RowsLayer.moves` of each joinable cache: the numbers change when tensors are replaced."""
        return [cache.moves for cache in self.joinable]

    @property
    def ahead(self) -> int:
        """Tokens that repeated steps can still append to every sequence: see `RowsLayer.ahead`."""
        return int(min(layer.ahead for layer in self.attending))

    @property
    def fuses(self) -> bool:
        """Whether the layers of a model can be compiled over these caches: see `RowsLayer.fuses`.

        Hybrid models, and layers that attend to another layer's keys and values, cannot.
        """
        if self.states or any(layer.readers for layer in self.attending):
            return False
        return all(cache.fuses for cache in self.joinable)

    def make_way(self) -> None:
        """Prepare for a step that is recorded or repeated: see `RowsLayer.make_way`."""
        for cache in self.joinable:
            cache.make_way()

    def advance(self) -> None:
        """Count the step that was repeated last."""
        for layer in self.attending:
            layer.advance(1)
        self.count(1)

    def counted(self) -> HostCounts:
        """The host's counts of a batch whose parts all have `ahead`."""
        ahead = [[part.cache.ahead for part in layer.parts] for layer in self.attending]
        return HostCounts(self.get_seq_length(), ahead, [sequence.passes for sequence in self.sequences])

    def restore(self, before: HostCounts) -> None:
        """Undo the counts of a step that was given up before the device executed any of it."""
        for layer, ahead in zip(self.attending, before.ahead, strict=True):
            for part, tokens in zip(layer.parts, ahead, strict=True):
                part.cache.advance(part.cache.ahead - tokens)
            layer.seen = before.seen
        for sequence, passes in zip(self.sequences, before.passes, strict=True):
            sequence.take_back(sequence.passes - passes)

    @property
    def takes_back(self) -> bool:
        """Whether the last tokens of a sequence can be removed without a trace. A linear state cannot do that."""
        return not self.states and all(layer.takes_back for layer in self.attending)

    def take_back(self, tokens: Sequence[int]) -> None:
        """Remove the tokens that each sequence read after its end, before the host knew about it. Sequences of one
        cache that lose different numbers of tokens cannot continue with it. The next pass counts for all sequences
        again: a conversation continues with a later turn."""
        for layer in self.attending:
            layer.take_back(tokens)
        self.ended.clear()

    def end(self, row: int, passes: int) -> None:
        """Note that a sequence ended `passes` passes ago: these and later passes do not count for it, until `take_back`
        removes their tokens."""
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
