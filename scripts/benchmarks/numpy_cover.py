"""The greedy cover with all similarities in float64 and the adjacency in bits, a baseline of the benchmark script.

Entry for entry that of `kvbench.methods.spindlekv.ops.greedy_cover`; every round sums bits over all nodes.
"""

import numpy as np
import torch
from torch import Tensor

from kvbench.ops.directions import TILE, directions
from tests.reference.plain_codebook import adjacent


def numpy_cover(x: Tensor, theta: float) -> tuple[Tensor, Tensor]:
    """Entries [|C|] and references [N] of x [N, d]."""
    units, nodes, weights, first = _distinct(directions(x))
    owner, order = _greedy(_pack(units, theta), weights)
    return first[torch.from_numpy(order)], torch.from_numpy(owner)[nodes]


def _distinct(units: Tensor) -> tuple[Tensor, Tensor, np.ndarray, Tensor]:
    """Equal rows merged: the M rows in order of first occurrence, node of each row [N], weights and firsts [M]."""
    n = len(units)
    index = torch.arange(n, device=units.device)
    _, inverse = torch.unique(units, dim=0, return_inverse=True)
    distinct = int(inverse.max()) + 1 if n else 0
    first = index.new_full((distinct,), n).scatter_reduce_(0, inverse, index, "amin")
    first, order = first.sort()
    rank = torch.empty_like(order).scatter_(0, order, index[:distinct])
    nodes = rank[inverse]
    weights = index.new_zeros(distinct).scatter_add_(0, nodes, torch.ones_like(index))
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
