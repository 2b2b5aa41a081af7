"""Layer caches that attend to codes, alone or with room that a decoding step can be repeated in."""

from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from kvbench.cache.coded.sequence import CodedSequence
from kvbench.cache.pack import Pack, PackRow
from kvbench.cache.packed import BLOCK
from kvbench.cache.reserve_ratio import Kept
from kvbench.cache.sequence import SequenceLayer, of_heads
from kvbench.ops import softmax
from kvbench.ops.softmax import Scaling


def attention(
    query: Tensor,
    keys: CodedSequence,
    values: CodedSequence,
    count: int,
    scaling: Scaling,
    hidden: Tensor | None = None,
) -> Tensor:
    """Of one query per head, [1, num_attention_heads, 1, head_dim], in float32 in 16-bit models too.

    Over the first `count` tokens, or those of them that are not `hidden`, bool [count].
    """
    grouped = query.view(len(keys.parts[0].buffer), -1, query.shape[-1]).float()
    logits = softmax.capped_(keys.logits(grouped, softmax.plain(scaling), count), scaling)
    if hidden is not None:
        logits.masked_fill_(hidden, float("-inf"))
    weights = softmax.weights(logits, scaling)
    return values.weighted_sum(weights).to(query.dtype).view(query.shape)


class CodedRows(Pack[PackRow]):
    """The coded keys and values of one cache, whose number of tokens is on the device: attention covers their room."""

    takes_blocks = False
    takes_back = True
    fuses = False  # tables of codes and rotations would be made in every step

    def __init__(self, keys: CodedSequence, values: CodedSequence):
        self.k, self.v, self.rows = keys, values, [PackRow()]
        self.end = torch.full((1,), keys.length, device=keys.parts[0].buffer.device)  # the place of the next token
        self._count_bytes()

    def joins(self, other: Pack[Any]) -> bool:
        return False

    @classmethod
    def joined(cls, parts: Sequence["CodedRows"], room: int) -> "CodedRows":
        (rows,) = parts
        rows.make_room(room)
        return rows

    def append(self, keys: Tensor, values: Tensor) -> None:
        """One token."""
        if not self.room:
            self.make_room(BLOCK)
        self.write(keys, values)
        self.advance(1)

    def write(self, keys: Tensor, values: Tensor) -> None:
        for store, new in ((self.k, keys), (self.v, values)):
            store.put(of_heads(new, len(store.parts[0].buffer)), self.end)
        self.end += 1

    @property
    def ahead(self) -> int:
        return self.room

    def advance(self, tokens: int) -> None:
        for part in (*self.k.parts, *self.v.parts):
            part.length += tokens
        self.room -= tokens
        self._count_bytes()

    def take_back(self, row: int, tokens: int) -> None:
        self.end -= tokens
        self.advance(-tokens)

    def make_room(self, tokens: int) -> None:
        if tokens > self.room:
            for part in (*self.k.parts, *self.v.parts):
                part.reserve(tokens)
            self.room = tokens
            self.moves += 1
            self._count_bytes()

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        count = self.k.length + self.room
        hidden = torch.arange(count, device=query.device) >= self.end
        return attention(query, self.k, self.v, count, scaling, hidden)

    def keep(self, rows: Sequence[int]) -> None:
        """There is one row, and it stays."""

    def tensors(self) -> list[Tensor]:
        return self.k.tensors() + self.v.tensors()

    def _count_bytes(self) -> None:
        (row,) = self.rows
        row.nbytes = sum(tensor.nbytes for tensor in self.tensors())
        row.filled_bytes = self.k.filled_bytes + self.v.filled_bytes


class CodedLayer(SequenceLayer):
    """Coded keys and values of the same tokens, quantised as they arrive. No row is written back decoded."""

    k: CodedSequence
    v: CodedSequence

    def __init__(self, keys: CodedSequence, values: CodedSequence, seen: int, kept: Kept):
        super().__init__(keys, values, len(keys.parts[0].buffer), seen, kept)

    @property
    def read_bytes(self) -> int:
        return self.filled_bytes

    def pack(self) -> CodedRows:
        rows = CodedRows(self.k, self.v)
        del self.k, self.v
        return rows

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        return attention(query, self.k, self.v, self.k.length, scaling)
