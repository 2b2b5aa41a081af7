"""The greedy cover in rounds of votes, as SpindleKV's kernel `greedy_covers` finds it, with what that takes."""

from dataclasses import dataclass

import torch
from torch import Tensor

from kvbench.ops.directions import directions
from tests.reference.plain_codebook import adjacent

BLOCK = 500  # nodes whose votes are counted at once


@dataclass
class Voted:
    entries: Tensor
    references: Tensor
    votes: list[int]  # nodes not covered yet, in each round
    degree_bits: int  # of the highest degree


def voting_cover(x: Tensor, theta: float) -> Voted:
    """Entries [|C|] and references [N] of x [N, d], in O(N²) memory."""
    n = len(x)
    units = directions(x)
    graph = adjacent(units, units, theta)
    names = units.unique(dim=0, return_inverse=True)[1]
    graph |= names[:, None] == names
    degrees = graph.sum(dim=1)
    highest = int(degrees.max())
    owners, picked = torch.zeros_like(degrees), torch.zeros_like(degrees)
    left, votes = torch.arange(n), []
    while len(left):
        # the highest degree first, then the lowest index; -1 for what is covered
        keys = torch.full((n,), -1).scatter(0, left, degrees[left] * n + n - 1 - left)
        best = torch.cat([keys.where(graph[rows], -1).argmax(dim=1) for rows in left.split(BLOCK)])
        won = (best.bincount(minlength=n) == degrees)[best]
        covered, owner = left[won], best[won]
        owners[covered], picked[owner] = owner, degrees[owner]
        degrees -= sum(graph[rows].sum(dim=0) for rows in covered.split(BLOCK))
        votes.append(len(left))
        left = left[~won]
    order = picked.sort(descending=True, stable=True).indices
    entries = order[: int((picked > 0).sum())]
    return Voted(entries, order.argsort()[owners], votes, highest.bit_length())
