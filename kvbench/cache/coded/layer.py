"""Layer caches of keys and values that are restored a block of tokens at a time, and never stored as rows again."""

import torch
from torch import Tensor

from kvbench.cache.base import BLOCK, unfolded
from kvbench.cache.coded.sequence import BlockwiseSequence, CodedSequence
from kvbench.cache.reserve_ratio import Kept
from kvbench.cache.rows import RowsLayer
from kvbench.cache.sequence import SequenceLayer
from kvbench.ops import softmax
from kvbench.ops.softmax import Scaling


class BlockwiseLayer(SequenceLayer):
    """Keys and values of the same tokens, in stores that need not grow row by row.

    Unlike a `CodedLayer` they have no room in which a decoding step could be repeated.
    """

    k: BlockwiseSequence
    v: BlockwiseSequence

    def __init__(self, keys: BlockwiseSequence, values: BlockwiseSequence, seen: int, kept: Kept):
        super().__init__(keys, values, keys.heads, seen, kept)

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        """Attention of one query per head, [1, num_attention_heads, 1, head_dim], in float32 in 16-bit models too."""
        return self.attention(query, self.k.length, scaling)

    def attention(self, query: Tensor, count: int, scaling: Scaling, hidden: Tensor | None = None) -> Tensor:
        """`attend` over the first `count` tokens without those that are `hidden`, bool [count]."""
        grouped = query.view(self.heads, -1, query.shape[-1]).float()
        logits = softmax.capped_(self.k.logits(grouped, softmax.plain(scaling), count), scaling)
        if hidden is not None:
            logits.masked_fill_(hidden, float("-inf"))
        weights = softmax.weights(logits, scaling)
        return self.v.weighted_sum(weights).to(query.dtype).view(*query.shape[:-1], -1)


class CodedLayer(BlockwiseLayer, RowsLayer):
    """Coded keys and values of the same tokens, quantised when they are appended.

    With room for further tokens the number of tokens is on the device, too, and attention covers the room.
    """

    k: CodedSequence
    v: CodedSequence
    takes_back = True
    fuses = False  # compiled code would make tables of codes and rotations in every step

    def __init__(self, keys: CodedSequence, values: CodedSequence, seen: int, kept: Kept):
        super().__init__(keys, values, seen, kept)
        self.end: Tensor | None = None  # int64 [1], the place of the next token; None before `make_room`

    def index_tables(self) -> list[Tensor]:
        return [] if self.end is None else [self.end]

    @property
    def read_bytes(self) -> int:
        return self.filled_bytes

    def append(self, keys: Tensor, values: Tensor) -> None:
        if self.end is None:
            return super().append(keys, values)
        if not self.room:
            self.make_room(BLOCK)
        self.write(keys, values)
        self.advance(1)

    def write(self, keys: Tensor, values: Tensor) -> None:
        """Write one token to the room."""
        assert self.end is not None, "`make_room` made it"
        for store, new in ((self.k, keys), (self.v, values)):
            store.put(unfolded(new, self.heads)[0], self.end)
        self.end += 1

    @property
    def ahead(self) -> int:
        return self.room

    def advance(self, tokens: int) -> None:
        for part in (*self.k.parts, *self.v.parts):
            part.length += tokens
        self.room -= tokens

    def take_back(self, row: int, tokens: int) -> None:
        assert self.end is not None, "tokens that are taken back were appended with room"
        self.end -= tokens
        self.advance(-tokens)

    def make_room(self, tokens: int) -> None:
        if self.end is None:
            self.end = torch.full((1,), self.k.length, device=self.k.parts[0].buffer.device)
        if tokens > self.room:
            for part in (*self.k.parts, *self.v.parts):
                part.reserve(tokens)
            self.room = tokens
            self.moves += 1

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        if self.end is None:
            return super().attend(query, scaling)
        count = self.k.length + self.room
        hidden = torch.arange(count, device=query.device) >= self.end
        return self.attention(query, count, scaling, hidden)
