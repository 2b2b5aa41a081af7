"""Greedy cover: a few of many vectors that stand for all of them by cosine similarity (SpindleKV's algorithm 1).

Similarities are exact. The components of unit vectors are rounded to multiples of 2^-25, about float32's precision.
Their products are multiples of 2^-50 and sum to less than 2, so float64 adds them without rounding in any order. A
pair therefore has the same similarity whatever tile size, thread count or device computes it.
"""

import math
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from kvbench.ops.operator import operator

GRID = 2.0**25
# Rows of one tile of similarities: a constant, so memory is N · TILE floats beside N²/8 bytes of adjacency.
TILE = 256


@dataclass(frozen=True)
class Cover:
    """Which vectors stand for all, in the order in which the greedy rule picks them."""

    entries: Tensor  # [|C|] indices of the vectors picked
    references: Tensor  # [N] the entry of every vector


def directions(x: Tensor) -> Tensor:
    """x [N, d] of any dtype as unit vectors on the grid, float64 [N, d]; a zero vector stays zero."""
    x = x.float().double()
    norms = x.norm(dim=-1, keepdim=True)
    return (x / norms.clamp_min(torch.finfo(torch.float32).tiny) * GRID).round_().div_(GRID)


def adjacent(rows: Tensor, columns: Tensor, theta: float) -> Tensor:
    """Equation 9 for a tile: bool [t, s], cosine of directions rows [t, d] and columns [s, d] above theta.

    The caller sets the diagonal: equal vectors are adjacent whatever rounding made of their cosine.
    """
    return rows @ columns.T > bound(theta)


def bound(theta: float) -> float:
    """theta as a bound for rounded cosines: infinite for theta = 1, which no true cosine exceeds."""
    return theta if theta < 1 else math.inf


def greedy_cover(x: Tensor, theta: float, counts: Tensor | None = None) -> Cover:
    """The cover of x [N, d] alone, in which row i stands for counts[i] copies: see `greedy_covers`."""
    n = len(x)
    counts = torch.ones(n, dtype=torch.long, device=x.device) if counts is None else counts.long()
    lengths = torch.full((1,), n, device=x.device)
    entries, sizes, references = greedy_covers(x[None], lengths, counts[None], float(theta))
    return Cover(entries[0, : int(sizes[0])], references[0])


@operator("greedy_covers(Tensor x, Tensor lengths, Tensor counts, float theta) -> (Tensor, Tensor, Tensor)", launches=3)
def greedy_covers(x: Tensor, lengths: Tensor, counts: Tensor, theta: float) -> tuple[Tensor, Tensor, Tensor]:
    """Algorithm 1 of SpindleKV (Tang et al. 2025, §3.4), for each of B sets of vectors by itself.

    x [B, N, d] of any dtype, of which the first lengths[b] rows (int64 [B]) are set b; degrees are those of G
    (equation 10). Repeatedly, the uncovered vector with the most uncovered neighbours (cosine > theta, itself included)
    becomes an entry, and those neighbours refer to it; ties go to the lowest index. Vectors of equal direction are
    always neighbours, zero vectors too.

    counts int64 [B, N], at least 1: how many copies each vector stands for (unfolded GQA heads). The result is that of
    writing the copies out one after the other. Vectors of equal direction have the same neighbours, so they are one
    node of their summed weight.

    Returns, int64 and 0 where there is nothing: entries [B, N], the rows picked in that order; sizes [B], how many;
    references [B, N], the place in that order of the entry of every row.
    """
    entries, references = torch.zeros_like(counts), torch.zeros_like(counts)
    sizes = torch.zeros_like(lengths)
    for b, n in enumerate(lengths.tolist()):
        units, nodes, weights, first = _distinct(directions(x[b, :n]), counts[b, :n])
        owner, order = _greedy(_pack(units, theta), weights)
        sizes[b] = len(order)
        entries[b, : len(order)] = first[torch.from_numpy(order).to(x.device)]
        references[b, :n] = torch.from_numpy(owner).to(x.device)[nodes]
    return entries, sizes, references


def _distinct(units: Tensor, counts: Tensor) -> tuple[Tensor, Tensor, np.ndarray, Tensor]:
    """Equal rows merged: the M rows in order of first occurrence, node of each row [N], weights and firsts [M]."""
    n = len(units)
    index = torch.arange(n, device=units.device)
    _, inverse = torch.unique(units, dim=0, return_inverse=True)
    distinct = int(inverse.max()) + 1 if n else 0
    first = index.new_full((distinct,), n).scatter_reduce_(0, inverse, index, "amin")
    first, order = first.sort()
    rank = torch.empty_like(order).scatter_(0, order, index[:distinct])
    nodes = rank[inverse]
    weights = index.new_zeros(distinct).scatter_add_(0, nodes, counts)
    return units[first], nodes, weights.cpu().numpy(), first


def _pack(units: Tensor, theta: float) -> np.ndarray:
    """The adjacency of units [M, d], diagonal set, as bits: uint8 [M, ceil(M / 8)]."""
    m = len(units)
    bits = np.empty((m, -(-m // 8)), dtype=np.uint8)
    for start in range(0, m, TILE):
        tile = adjacent(units[start : start + TILE], units, theta)
        tile.diagonal(start).fill_(True)
        bits[start : start + TILE] = np.packbits(tile.cpu().numpy(), axis=1, bitorder="little")
    return bits


def _greedy(bits: np.ndarray, weights: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Entry of every node [M], and the nodes picked in order.

    Degrees only fall, so they are updated by subtraction, each row once in all. A node without other neighbours
    changes no degree and is settled at once, out of turn. The order is restored at the end: degrees at the time of
    picking never rise, and equal ones come by index.
    """
    m = len(bits)
    everyone = np.arange(m)
    degrees = _shares(bits, everyone, weights)
    owner = everyone.copy()
    degree_when_picked = np.zeros(m)
    alive = np.ones(m, dtype=bool)

    def settle_loners() -> None:
        loners = alive & (degrees == weights)
        degree_when_picked[loners] = weights[loners]
        alive[loners] = False
        degrees[loners] = 0

    settle_loners()
    while m and degrees[pick := degrees.argmax()]:
        members = np.flatnonzero(_unpack(bits[pick], m) & alive)
        owner[members] = pick
        degree_when_picked[pick] = degrees[pick]
        alive[members] = False
        degrees -= _shares(bits, members, weights)
        degrees[~alive] = 0
        settle_loners()

    picked = everyone[owner == everyone]
    order = picked[np.lexsort((picked, -degree_when_picked[picked]))]
    rank = np.empty(m, dtype=np.int64)
    rank[order] = np.arange(len(order))
    return rank[owner], order


def _unpack(bits: np.ndarray, m: int) -> np.ndarray:
    return np.unpackbits(bits, axis=-1, count=m, bitorder="little")


def _shares(bits: np.ndarray, rows: np.ndarray, weights: np.ndarray) -> np.ndarray:
    """The part of every node's degree that `rows` contribute: their sum of weight times adjacency, [M]."""
    m = len(bits)
    total = np.zeros(m)
    for start in range(0, len(rows), TILE):
        part = rows[start : start + TILE]
        total += weights[part].astype(np.float64) @ _unpack(bits[part], m)
    return total
