"""Parts of a codebook cache beside its coded vectors: each stream's kept tokens, and the uncompressed last tokens."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor


@dataclass
class Streams:
    """The coded prompt tokens of each stream. A stream is a KV head, or a query head with its own codebook."""

    tokens: list[int]  # coded tokens of the prompt, per stream
    positions: Tensor | None  # positions of all streams' tokens, in the narrowest integer type
    position_offsets: list[int]  # per stream; -1: its tokens are 0 … tokens-1
    bits: Tensor | None  # uint8, per stream [query heads, ceil(tokens / 8)]: the tokens that a query head keeps
    bit_offsets: list[int]  # per stream; -1: all its query heads keep all tokens

    @classmethod
    def joined(cls, parts: Sequence["Streams"]) -> "Streams":
        positions = _behind([Held(part.positions, part.position_offsets) for part in parts])
        bits = _behind([Held(part.bits, part.bit_offsets) for part in parts])
        return cls([count for part in parts for count in part.tokens], *positions, *bits)

    def keep(self, streams: Sequence[int]) -> None:
        """Forget all other streams. Their positions and bits stay stored but are not read."""
        for name in ("tokens", "position_offsets", "bit_offsets"):
            setattr(self, name, [getattr(self, name)[stream] for stream in streams])

    def tensors(self) -> list[Tensor]:
        return [t for t in (self.positions, self.bits) if t is not None]


@dataclass
class Raw:
    """The prompt's uncompressed last tokens, packed over KV heads: [rows, head_dim]."""

    keys: Tensor  # after RoPE, in paired order
    values: Tensor
    windows: list[int]  # rows of each KV head

    @classmethod
    def joined(cls, parts: Sequence["Raw"]) -> "Raw":
        keys, values = (torch.cat([getattr(part, side) for part in parts]) for side in ("keys", "values"))
        return cls(keys, values, [count for part in parts for count in part.windows])

    def keep(self, heads: Sequence[int]) -> None:
        self.keys, self.values = (
            torch.cat([parts[head] for head in heads])
            for parts in (self.keys.split(self.windows), self.values.split(self.windows))
        )
        self.windows = [self.windows[head] for head in heads]


class Held(NamedTuple):
    tensor: Tensor | None
    offsets: list[int]  # of each stream in `tensor`; -1: the stream has no part of it


def _behind(parts: Sequence[Held]) -> Held:
    """The concatenated tensors, and the streams' offsets in the result; -1 stays."""
    offsets, start = [], 0
    for held, part_offsets in parts:
        offsets += [offset if offset < 0 else start + offset for offset in part_offsets]
        start += 0 if held is None else len(held)
    tensors = [part.tensor for part in parts if part.tensor is not None]
    return Held(torch.cat(tensors) if tensors else None, offsets)
