"""Packed attention head by head and query by query, and packed segments to try it on."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from kvbench.ops.segments import Segments as Tables
from kvbench.ops.segments import Visible


@dataclass
class Segments:
    """Random rows of segments as `packed_attention` takes them; `seen` has the bits, bool [group, masked] a segment."""

    query: Tensor
    keys: Tensor
    values: Tensor
    starts: Tensor
    lengths: Tensor
    heads: Tensor
    group: int
    longest: int
    scaling: float = 0.3
    masked: Tensor | None = None
    bit_starts: Tensor | None = None
    bits: Tensor | None = None
    seen: list[Tensor] = field(default_factory=list)

    def arguments(self) -> list:
        tables = Tables(self.starts, self.lengths, self.heads, self.group, self.longest)
        visible = Visible(self.masked, self.bit_starts, self.bits)
        return [self.query, self.keys, self.values, tables, self.scaling, visible]


def segments(
    rows: list[list[int]],
    heads: int,
    head_dim: int = 64,
    q: int = 1,
    dtype: torch.dtype = torch.float32,
    room: int = 3,
    masked: list[list[int]] | None = None,
    seed: int = 0,
) -> Segments:
    """Segments of the lengths in `rows`, for `heads` query heads a row; behind each lies what is no number.

    masked: for every segment how many of its first tokens have bits.
    """
    generator = torch.Generator().manual_seed(seed)
    lengths = [length for row in rows for length in row]
    groups = [heads // len(row) for row in rows for _ in row]
    capacity = sum(lengths) + room * len(lengths)
    query = torch.randn(len(rows), heads, q, head_dim, generator=generator).to(dtype)
    keys, values = (torch.full((capacity, head_dim), torch.nan, dtype=dtype) for _ in range(2))
    starts = [0]
    for length in lengths:
        for x in (keys, values):
            x[starts[-1] : starts[-1] + length] = torch.randn(length, head_dim, generator=generator).to(dtype)
        starts.append(starts[-1] + length + room)
    int32 = {"dtype": torch.int32}
    made = Segments(
        query,
        keys,
        values,
        torch.tensor(starts, **int32),
        torch.tensor(lengths, **int32),
        torch.tensor([sum(groups[:s]) for s in range(len(groups) + 1)], **int32),
        max(groups),
        max(lengths),
    )
    if masked is not None:
        counts = [count for row in masked for count in row]
        made.seen = [
            torch.rand(group, count, generator=generator) < 0.5 for group, count in zip(groups, counts, strict=True)
        ]
        packed = [packed_slowly(seen) for seen in made.seen]
        made.masked = torch.tensor(counts, **int32)
        made.bit_starts = torch.tensor([sum(map(len, packed[:s])) for s in range(len(packed))], **int32)
        made.bits = torch.tensor([byte for part in packed for byte in part], dtype=torch.uint8)
    return made


def packed_slowly(seen: Tensor) -> list[int]:
    """Bytes of booleans [group, masked], each row in whole bytes, the first in the lowest bit."""
    rows = seen.tolist()
    return [
        sum(bit << i for i, bit in enumerate(row[start : start + 8])) for row in rows for start in range(0, len(row), 8)
    ]


def plain_packed_attention(given: Segments) -> Tensor:
    """Computed in float64; float32 [rows, num_attention_heads, q, head_dim]."""
    _, num_heads, q, _ = given.query.shape
    out = torch.zeros(given.query.shape, dtype=torch.float64)
    for s, length in enumerate(given.lengths.tolist()):
        start = int(given.starts[s])
        keys, values = (x[start : start + length].double() for x in (given.keys, given.values))
        for head in range(int(given.heads[s]), int(given.heads[s + 1])):
            for i in range(q):
                sees = torch.arange(length) <= length - q + i
                if given.bits is not None:
                    row = given.seen[s][head - int(given.heads[s])]
                    sees[: len(row)] &= row
                if sees.any():
                    one = given.query[head // num_heads, head % num_heads, i].double()
                    weights = (keys[sees] @ one * given.scaling).softmax(0)
                    out[head // num_heads, head % num_heads, i] = weights @ values[sees]
    return out.float()
