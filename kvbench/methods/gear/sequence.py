"""Keys and values rounded in equal steps, with outliers stored apart and the rounding errors in a low rank."""

from abc import ABC, abstractmethod
from dataclasses import dataclass

import torch
from torch import Tensor

from kvbench.cache.base import Growing
from kvbench.cache.coded.sequence import BlockwiseSequence
from kvbench.methods.gear.low_rank import low_rank
from kvbench.ops.small_codes import code_table, pack_codes, unpack_codes

ROUNDS = 3  # of subspace iteration


@dataclass(frozen=True)
class Recipe:
    """How rows are compressed."""

    bits: int  # bits of a code
    group: int | None  # tokens of a key's channel, or channels of a value, that share a scale; None: all
    outliers: float  # share of the numbers that are stored apart
    rank: int  # rank of the low-rank part


class Part(ABC):
    """Rows that were compressed together: rounded numbers + outliers + a low-rank part."""

    def __init__(self, rows: Tensor, recipe: Recipe):
        """rows [heads, t, head_dim], at least one row; for keys with a group, a multiple of the group."""
        dtype, (self.heads, self.length, self.width), self.recipe = rows.dtype, rows.shape, recipe
        x = self.arranged(rows.float())
        side = int(x.shape[-1] * recipe.outliers / 2 + 1e-9)
        ends = [x.topk(side, dim=-1, largest=largest).indices for largest in (True, False)]
        self.places = torch.cat(ends, dim=-1).to(torch.int16 if x.shape[-1] <= 2**15 else torch.int32)
        places = self.places.long()
        self.numbers = x.gather(-1, places).to(dtype)
        inner = x.scatter(-1, places, x.mean(dim=-1, keepdim=True).expand_as(places))
        groups = inner.unflatten(-1, (-1, recipe.group or inner.shape[-1]))
        low, high = groups.aminmax(dim=-1, keepdim=True)
        scale = ((high - low) / (2**recipe.bits - 1)).to(dtype)
        scale.masked_fill_(scale == 0, 1)
        low = low.to(dtype)
        codes = ((groups - low.float()) / scale.float()).round().clamp_(0, 2**recipe.bits - 1).flatten(-2)
        self.scale, self.low = scale[..., 0], low[..., 0]
        self.codes = pack_codes(self.back(codes).int(), recipe.bits).to(torch.uint8)
        rank = min(recipe.rank, *rows.shape[1:])
        self.left = self.right = rows.new_empty(self.heads, self.length, 0)
        if rank:
            left, right = low_rank(rows.float() - self.decoded(slice(None)), rank, ROUNDS)
            self.left, self.right = left.to(dtype), right.to(dtype)

    @abstractmethod
    def arranged(self, rows: Tensor) -> Tensor:
        """Rows [heads, t, head_dim] as vectors that each have their own outliers: [..., numbers of a vector]."""

    @abstractmethod
    def back(self, vectors: Tensor) -> Tensor:
        """The inverse of `arranged`."""

    @abstractmethod
    def spread(self, of_groups: Tensor, tokens: slice) -> Tensor:
        """Values per group, [..., groups], for the numbers of the rows `tokens`: broadcasts to [heads, t, head_dim]."""

    @abstractmethod
    def put_outliers(self, rows: Tensor, tokens: slice) -> Tensor:
        """The float32 rows [heads, t, head_dim] of `tokens` with their outliers put in."""

    def decoded(self, tokens: slice) -> Tensor:
        """The rows `tokens`, a slice with both ends or none: float32 [heads, t, head_dim]."""
        codes = self.codes[:, tokens]
        levels = code_table(tuple(map(float, range(2**self.recipe.bits))), self.recipe.bits, codes.device)
        rounded = unpack_codes(codes, self.recipe.bits, levels)
        rows = rounded * self.spread(self.scale.float(), tokens) + self.spread(self.low.float(), tokens)
        rows = self.put_outliers(rows, tokens)
        if not self.left.shape[2]:
            return rows
        return torch.baddbmm(rows, self.left[:, tokens].float(), self.right.float().mT)

    def tensors(self) -> list[Tensor]:
        return [self.codes, self.scale, self.low, self.places, self.numbers, self.left, self.right]


class KeyPart(Part):
    """Keys: a vector is one channel over all rows."""

    def arranged(self, rows: Tensor) -> Tensor:
        return rows.mT

    def back(self, vectors: Tensor) -> Tensor:
        return vectors.mT

    def spread(self, of_groups: Tensor, tokens: slice) -> Tensor:
        group = self.recipe.group or self.length
        start, stop, _ = tokens.indices(self.length)
        return of_groups[..., torch.arange(start, stop, device=of_groups.device) // group].mT

    def put_outliers(self, rows: Tensor, tokens: slice) -> Tensor:
        start, stop, _ = tokens.indices(self.length)
        places = self.places.long() - start
        inside = (places >= 0) & (places < stop - start)
        # outliers of other tokens are written to an extra last row, which is dropped
        room = torch.cat([rows, rows.new_empty(self.heads, 1, self.width)], dim=1)
        room.scatter_(1, places.where(inside, stop - start).mT, self.numbers.float().mT)
        return room[:, :-1]


class ValuePart(Part):
    """Values: a vector is one row, with the channels of all heads."""

    def arranged(self, rows: Tensor) -> Tensor:
        return rows.transpose(0, 1).flatten(1)

    def back(self, vectors: Tensor) -> Tensor:
        return vectors.unflatten(1, (self.heads, -1)).transpose(0, 1)

    def spread(self, of_groups: Tensor, tokens: slice) -> Tensor:
        numbers = of_groups[tokens]  # [t, groups]
        group = self.heads * self.width // numbers.shape[1]
        return self.back(numbers.repeat_interleave(group, dim=1))

    def put_outliers(self, rows: Tensor, tokens: slice) -> Tensor:
        vectors = self.arranged(rows).scatter(1, self.places[tokens].long(), self.numbers[tokens].float())
        return self.back(vectors)


class GearSequence(BlockwiseSequence):
    """Compressed parts, one of the prompt's rows and then one for every `buffer` rows; the latest rows uncompressed."""

    def __init__(self, rows: Tensor, kind: type[Part], prompt: Recipe, later: Recipe, buffer: int):
        """`prompt` compresses the prompt's rows [heads, len, head_dim], `later` those of decoded tokens."""
        self.dtype, self.kind, self.later, self.limit = rows.dtype, kind, later, buffer
        self.heads, coded, self.width = rows.shape
        if kind is KeyPart and prompt.group:
            coded -= coded % prompt.group
        self.parts = [kind(rows[:, :coded], prompt)] if coded else []
        self.raw = Growing(rows[:, coded:].clone())

    @property
    def length(self) -> int:
        return int(sum(part.length for part in self.parts) + self.raw.length)

    def append(self, rows: Tensor) -> None:
        for row in rows.split(1, dim=1):
            self.raw.append(row)
            if self.raw.length == self.limit:
                self.parts.append(self.kind(self.raw.view, self.later))
                self.raw = Growing(row[:, :0])

    def decoded(self, tokens: slice) -> Tensor:
        start, stop, _ = tokens.indices(self.length)
        pieces = []
        for part in self.parts:
            if start < part.length and stop > 0:
                pieces.append(part.decoded(slice(max(start, 0), min(stop, part.length))))
            start, stop = start - part.length, stop - part.length
        pieces.append(self.raw.view[:, max(start, 0) : max(stop, 0)].float())
        return torch.cat(pieces, dim=1)

    def tensors(self) -> list[Tensor]:
        return [*(tensor for part in self.parts for tensor in part.tensors()), self.raw.buffer]

    @property
    def filled_bytes(self) -> int:
        return int(sum(x.nbytes for part in self.parts for x in part.tensors()) + self.raw.filled_bytes)
