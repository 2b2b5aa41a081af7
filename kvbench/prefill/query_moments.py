"""Mean and covariance of a prompt's queries before RoPE, computed in tiles (Expected Attention)."""

from dataclasses import dataclass

import torch
from torch import Tensor

from kvbench.ops.rope import Rope

TILE = 1024  # queries whose float32 copies exist at a time


@dataclass
class QueryMoments:
    """Moments of `count` queries, in float32. Tiles of any size give the same up to rounding."""

    mean: Tensor  # [num_attention_heads, head_dim]
    covariance: Tensor  # [num_attention_heads, head_dim, head_dim], divided by count
    count: int

    @classmethod
    def none(cls, like: Tensor) -> "QueryMoments":
        """The moments of no queries, for heads as in like [num_attention_heads, n, head_dim]."""
        heads, _, d = like.shape
        zeros = torch.zeros(heads, d, d, device=like.device)
        return cls(zeros[:, 0].clone(), zeros, 0)

    def add(self, queries: Tensor) -> None:
        """Add queries [num_attention_heads, t, head_dim], without losing digits to a mean far from zero.

        Source: Chan, Golub and LeVeque 1979, the update of a mean and a sum of squares by another sample's.
        """
        queries = queries.float()
        t = queries.shape[1]
        mean = queries.mean(dim=1)
        centred = queries - mean[:, None]
        total, step = self.count + t, mean - self.mean
        squares = centred.mT @ centred + step[..., None] * step[:, None] * (self.count * t / total)
        self.covariance = (self.covariance * self.count + squares) / total
        self.mean = self.mean + step * (t / total)
        self.count = total


def query_moments(
    queries: Tensor, rope: Rope, skip: int, start: int = 0, moments: QueryMoments | None = None
) -> QueryMoments:
    """Moments of queries [num_attention_heads, q, head_dim] (after RoPE) at positions start, start+1, …

    The first `skip` positions of the text are left out. If given, `moments` of the queries before `start` are updated.
    """
    moments = QueryMoments.none(queries) if moments is None else moments
    first = max(skip - start, 0)
    for begin in range(first, queries.shape[1], TILE):
        tile = queries[:, begin : begin + TILE]
        positions = torch.arange(start + begin, start + begin + tile.shape[1])
        moments.add(rope.rotate(tile.float(), -positions))
    return moments
