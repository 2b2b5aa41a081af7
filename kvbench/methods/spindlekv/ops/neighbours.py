"""The graph of a greedy cover on the CPU: which directions have a cosine above theta (SpindleKV's equation 9).

Similarities are computed in float32 and decide wherever they are farther from theta than their rounding error can be.
The few pairs that are nearer are computed again exactly, so the graph is that of exact similarities.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from kvbench.ops.directions import bound

# Similarities of one tile: few enough for a core's cache. A constant keeps memory from being O(N²) floats.
TILE = 2**20
# A graph with more pairs than this share of all N² is held as bits, N²/8 bytes; below, lists are smaller.
DENSE = 1 / 64


class Contributions(NamedTuple):
    """The amounts that nodes add to the degrees of their neighbours."""

    columns: np.ndarray  # the neighbours, perhaps with repeats
    amounts: np.ndarray  # of the same length


class Graph(Protocol):
    """Nodes with neighbours; none is its own neighbour."""

    def degrees(self, weights: np.ndarray) -> np.ndarray:
        """The summed weights of every node's neighbours."""

    def row(self, node: int) -> np.ndarray:
        """The neighbours of `node`, ascending."""

    def shares(self, nodes: np.ndarray, weights: np.ndarray) -> Contributions:
        """The neighbours of any of `nodes`, and what each entry contributes to a sum of weights."""


def neighbours(units: Tensor, theta: float) -> Graph:
    """The graph of directions units [M, d], distinct, on the CPU."""
    if bound(theta) > 1:
        return Lists([], [], len(units))
    m = len(units)
    rows, columns, most = [], [], m * m * DENSE
    for start, flat in _tiles(units, theta, triangle=True):
        row = flat // (m - start)  # row within the block
        column = flat - row * (m - start)
        above = column > row  # each pair once, and no node with itself
        rows.append((row[above] + start).astype(np.int32))
        columns.append((column[above] + start).astype(np.int32))
        most -= len(rows[-1])
        if most < 0:
            return Bits(units, theta)
    return Lists(rows, columns, m)


class Lists:
    """Every node's neighbours one after the other; from pairs of row < column in order, in parts."""

    def __init__(self, rows: list[np.ndarray], columns: list[np.ndarray], nodes: int):
        a, b = (np.concatenate([np.empty(0, np.int32), *side]) for side in (rows, columns))
        after, before = np.bincount(a, minlength=nodes), np.bincount(b, minlength=nodes)
        # the smaller neighbours of a node, then the larger ones; 16 bits sort by radix
        smaller = np.tile([True, False], nodes).repeat(np.stack([before, after], axis=1).ravel())
        self.columns = np.empty(2 * len(a), np.int32)
        self.columns[smaller] = a[np.argsort(b.astype(np.uint16) if nodes <= 2**16 else b, kind="stable")]
        self.columns[~smaller] = b
        self.starts = np.concatenate([[0], (before + after).cumsum()])
        self.spans = self.starts.tolist()

    def degrees(self, weights: np.ndarray) -> np.ndarray:
        sums = np.zeros(len(self.columns) + 1, np.int64)
        np.cumsum(weights[self.columns], out=sums[1:])
        return np.diff(sums[self.starts])

    def row(self, node: int) -> np.ndarray:
        return self.columns[self.spans[node] : self.spans[node + 1]]

    def shares(self, nodes: np.ndarray, weights: np.ndarray) -> Contributions:
        columns = np.concatenate([self.columns[:0], *map(self.row, nodes.tolist())])
        return Contributions(columns, weights[nodes].repeat(self.starts[nodes + 1] - self.starts[nodes]))


class Bits:
    """The adjacency as bits: uint8 [M, ceil(M / 8)]."""

    def __init__(self, units: Tensor, theta: float):
        self.nodes = len(units)
        rows = block(self.nodes)
        self.bits = np.empty((self.nodes, -(-self.nodes // 8)), dtype=np.uint8)
        for start, flat in _tiles(units, theta, triangle=False):
            mask = np.zeros((min(rows, self.nodes - start), self.nodes), dtype=bool)
            mask.ravel()[flat] = True
            np.fill_diagonal(mask[:, start:], False)
            self.bits[start : start + len(mask)] = np.packbits(mask, axis=1, bitorder="little")

    def degrees(self, weights: np.ndarray) -> np.ndarray:
        return self._sums(np.arange(self.nodes), weights)

    def row(self, node: int) -> np.ndarray:
        return np.flatnonzero(self._unpacked(node))

    def shares(self, nodes: np.ndarray, weights: np.ndarray) -> Contributions:
        total = self._sums(nodes, weights)
        columns = np.flatnonzero(total)
        return Contributions(columns, total[columns])

    def _sums(self, nodes: np.ndarray, weights: np.ndarray) -> np.ndarray:
        """For every node the summed weights of its neighbours among `nodes`."""
        total = np.zeros(self.nodes)
        rows = block(self.nodes)
        for start in range(0, len(nodes), rows):
            part = nodes[start : start + rows]
            total += weights[part].astype(np.float64) @ self._unpacked(part)
        return total.astype(np.int64)

    def _unpacked(self, rows: int | np.ndarray) -> np.ndarray:
        return np.unpackbits(self.bits[rows], axis=-1, count=self.nodes, bitorder="little")


def rounded(units: Tensor) -> tuple[Tensor, float]:
    """Directions [M, d] of which products may be taken, and how far such a cosine can be from the exact one."""
    # A float32 component is within 2^-24 of the unit's, relatively, and a sum of d products of them within d · 2^-24
    # of the exact one in any order (times 1 + d · 2^-24), both for vectors of length 1. The rest is for theta's own
    # rounding and that of the lengths.
    slack = 1.01 * (units.shape[1] + 6) * 2.0**-24
    single = torch.get_float32_matmul_precision() == "highest"  # else float32 products may be of bfloat16
    return (units.float() if single else units), slack


def block(nodes: int) -> int:
    """Rows of similarities with `nodes` columns that are computed at once."""
    return max(TILE // max(nodes, 1), 1)


def _tiles(units: Tensor, theta: float, triangle: bool) -> Iterator[tuple[int, np.ndarray]]:
    """For one block of rows after the other: its first row, and which of its similarities exceed theta, as indices into
    the flattened block [rows, M]; with `triangle` its columns begin at the first row.
    """
    m = len(units)
    vectors, slack = rounded(units)
    rows = block(m)
    similarities = vectors.new_empty(rows * m)
    above = np.empty(rows * m, dtype=bool)
    for start in range(0, m, rows):
        first = start if triangle else 0
        width = m - first
        count = min(rows, m - start) * width
        torch.mm(vectors[start : start + rows], vectors[first:].T, out=similarities[:count].view(-1, width))
        cosines = similarities[:count].numpy()
        flat = np.flatnonzero(np.greater(cosines, theta - slack, out=above[:count]))
        near = np.flatnonzero(cosines[flat] <= theta + slack)
        pairs = torch.from_numpy(flat[near])
        exact = (units[pairs // width + start] * units[pairs % width + first]).sum(dim=1)
        yield start, np.delete(flat, near[exact.numpy() <= theta])
