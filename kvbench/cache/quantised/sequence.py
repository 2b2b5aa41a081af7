"""Sequences whose older rows are quantised."""

from abc import abstractmethod
from collections.abc import Hashable
from collections.abc import Sequence as Several
from copy import copy
from typing import NamedTuple, Self

import torch
from torch import Tensor

from kvbench.cache.base import BLOCK, Growing
from kvbench.cache.sequence import Sequence
from kvbench.ops.quantise import CHANNELS, TOKENS, Quantised, Quantiser


class Stored(NamedTuple):
    """The tensors of a sequence, room included."""

    codes: Tensor
    scale: Tensor
    minimum: Tensor
    ring: Tensor


class Ring:
    """The last rows of a sequence, at most `limit`: row i of the sequence is row i mod limit of `buffer`.

    `buffer` [heads, rows, head_dim] grows by blocks up to `limit` rows. Rows that were not written yet are zero.
    """

    def __init__(self, rows: Tensor, limit: int, first: int):
        """rows [heads, at most limit, head_dim], copied; first: the index of the first of them in the sequence."""
        self.limit = limit
        self.buffer = rows.roll(first % limit, dims=1) if 0 < limit == rows.shape[1] else rows.clone()

    def at(self, index: int) -> Tensor:
        """Row `index` of the sequence as a view [heads, 1, head_dim] for reading or writing."""
        self.open(index)
        return self.buffer.narrow(1, index % self.limit, 1)

    def open(self, index: int) -> None:
        """Make a place for row `index` of the sequence."""
        slot = index % self.limit
        if slot >= self.buffer.shape[1]:
            self.reserve(slot + BLOCK)

    def reserve(self, rows: int) -> None:
        """Make places for `rows` rows, at most `limit`."""
        heads, held, width = self.buffer.shape
        missing = min(rows, self.limit) - held
        if missing > 0:
            self.buffer = torch.cat([self.buffer, self.buffer.new_zeros(heads, missing, width)], dim=1)

    def filled_bytes(self, length: int) -> int:
        """Bytes of the filled rows, for a sequence of `length` rows."""
        heads, _, width = self.buffer.shape
        return int(min(length, self.limit) * heads * width * self.buffer.element_size())

    def rows(self, start: int, end: int) -> Tensor:
        """Rows start … end-1 of the sequence in order, [heads, end - start, head_dim]; a view if they do not wrap."""
        first = start % self.limit if end > start else 0
        wrapped = first + end - start - self.limit
        if wrapped <= 0:
            return self.buffer[:, first : first + end - start]
        return torch.cat([self.buffer[:, first:], self.buffer[:, :wrapped]], dim=1)


class QuantisedSequence(Sequence):
    """Quantised older rows, and the most recent rows (`residual`), at most `limit`, unchanged."""

    axis: int

    def __init__(self, rows: Tensor, bits: int, group: int, residual: int):
        """rows [heads, len, head_dim] are copied."""
        self.quantiser = Quantiser(bits, group, self.axis)
        self.length, self.limit = rows.shape[1], residual
        # rows are quantised in blocks, so spare room would be unused bytes
        self.parts = [Growing(part, block=1) for part in self.quantiser(rows[:, : self.quantised])]
        self.ring = Ring(rows[:, self.quantised :], residual, self.quantised)

    @property
    @abstractmethod
    def quantised(self) -> int:
        """How many of the `length` rows, the oldest, attention reads quantised."""

    @property
    def residual(self) -> Tensor:
        """The rows that attention reads unquantised, in order."""
        return self.ring.rows(self.quantised, self.length)

    def append(self, rows: Tensor) -> None:
        if rows.shape[1] == 1:
            return self.append_row(rows)
        for row in rows.split(1, dim=1):
            self.append_row(row)

    @property
    def heads(self) -> int:
        return int(self.ring.buffer.shape[0])

    @property
    def kind(self) -> tuple[Hashable, ...]:
        """Equal for sequences that can be joined into one."""
        shapes = (tuple(tensor.shape) for tensor in self.tensors())
        return self.quantiser, self.length, self.limit, self.ring.buffer.dtype, *shapes

    @classmethod
    def joined(cls, parts: Several[Self]) -> Self:
        """One sequence with the heads of all parts, which have equal `kind`s."""
        sequence = copy(parts[0])
        sequence.parts = [
            Growing(torch.cat(stores), block=1)
            for stores in zip(*([store.view for store in part.parts] for part in parts), strict=True)
        ]
        sequence.ring = copy(parts[0].ring)
        sequence.ring.buffer = torch.cat([part.ring.buffer for part in parts])
        return sequence

    def keep(self, heads: Tensor) -> None:
        """Keep these heads and drop the others."""
        self.parts = [part.of_heads(heads) for part in self.parts]
        self.ring.buffer = self.ring.buffer.index_select(0, heads)

    def append_row(self, row: Tensor) -> None:
        """Append row [heads, 1, head_dim]."""
        self.make_way()
        self.ring.at(self.length).copy_(row)
        self.came()

    def make_way(self) -> None:
        """Prepare the ring for the next row."""
        self.ring.open(self.length)

    def came(self) -> None:
        """Count a row that is now in the ring."""
        self.length += 1

    @property
    @abstractmethod
    def ahead(self) -> int:
        """How many rows can be appended one by one before any must be quantised."""

    def reserve(self, tokens: int) -> None:
        """Make room for `tokens` more rows, which then replace no tensor."""
        self.ring.reserve(self.length % self.limit + tokens)
        for part, rows in zip(self.parts, self.quantiser.sizes(self._leaving(tokens)), strict=True):
            part.reserve(rows)

    @abstractmethod
    def _leaving(self, tokens: int) -> int:
        """How many rows are quantised when `tokens` more tokens are appended."""

    def quantise(self, rows: Tensor) -> None:
        """Quantise rows [heads, t, head_dim], the next rows after the last quantised row."""
        for store, part in zip(self.parts, self.quantiser(rows), strict=True):
            store.append(part)

    def codes(self) -> Quantised:
        """Codes, scale and minimum of the quantised rows."""
        return Quantised(*(part.view for part in self.parts))

    def read(self) -> Tensor:
        parts = [self.residual]
        if self.quantised:
            parts.insert(0, self.quantiser.restore(*self.codes()))
        return torch.cat(parts, dim=1) if parts[-1].shape[1] else parts[0]

    @property
    def stored(self) -> Stored:
        codes, scale, minimum = (part.buffer for part in self.parts)
        return Stored(codes, scale, minimum, self.ring.buffer)

    def tensors(self) -> list[Tensor]:
        return list(self.stored)

    @property
    def filled_bytes(self) -> int:
        return self.ring.filled_bytes(self.length - self.quantised) + sum(part.filled_bytes for part in self.parts)

    @property
    def share(self) -> float:
        if not self.length:
            return 1.0
        element = 8 * self.ring.buffer.element_size()
        raw = self.length - self.quantised
        bits = self.quantised * self.quantiser.bits_per_element(element) + raw * element
        return float(bits / (element * self.length))


class QuantisedKeys(QuantisedSequence):
    """Quantised per channel, over groups of consecutive tokens, in blocks: 0 … residual - 1 rows stay unchanged."""

    axis = TOKENS

    @property
    def quantised(self) -> int:
        return int(self.length - self.length % self.limit)

    def came(self) -> None:
        super().came()
        if self.length % self.limit == 0:
            self.quantise(self.ring.buffer)

    @property
    def ahead(self) -> int:
        return int(self.limit - 1 - self.length % self.limit)

    def _leaving(self, tokens: int) -> int:
        return int((self.length % self.limit + tokens) // self.limit * self.limit)


class QuantisedValues(QuantisedSequence):
    """Quantised per token, over groups of channels. The last `limit` rows stay unchanged.

    A row's codes depend on no other row, so while decoding up to BLOCK rows are quantised together before they leave
    the ring: `parts` then hold more rows than attention reads.
    """

    axis = CHANNELS

    @property
    def quantised(self) -> int:
        return int(max(0, self.length - self.limit))

    def make_way(self) -> None:
        if not self.ahead:
            leaving = self.length - self.limit
            self.quantise(self.ring.rows(leaving, leaving + self.at_once))
        super().make_way()

    @property
    def at_once(self) -> int:
        return min(BLOCK, self.limit)

    @property
    def ahead(self) -> int:
        return int(self.limit + self.parts[0].length - self.length)

    def _leaving(self, tokens: int) -> int:
        return -(-max(tokens - self.ahead, 0) // self.at_once) * self.at_once

    def codes(self) -> Quantised:
        return Quantised(*(part.view[:, : self.quantised] for part in self.parts))

    @property
    def read_bytes(self) -> int:
        return self.filled_bytes - sum(int(part.length - self.quantised) * part.row_bytes for part in self.parts)
