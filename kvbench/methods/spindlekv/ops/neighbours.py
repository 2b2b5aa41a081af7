"""The graph of a greedy cover on the CPU: which directions have a cosine above theta (SpindleKV's equation 9).

Similarities are computed in float32, which decides if they are farther from theta than their largest rounding error.
The few nearer pairs are computed again exactly, so the graph is the graph of exact similarities.
"""

from collections.abc import Iterator
from typing import NamedTuple, Protocol

import numpy as np
import torch
from torch import Tensor

from kvbench.ops.directions import bound

# Similarities of one tile: they fit in a core's cache, and memory does not grow to O(N²) floats.
TILE = 2**20
# A graph with more pairs than this share of N² is held as bits, N²/8 bytes; with fewer pairs lists are smaller.
DENSE = 1 / 64


class Contributions(NamedTuple):
    """The amounts that nodes add to the degrees of their neighbours."""

    columns: np.ndarray  # the neighbours, possibly repeated
    amounts: np.ndarray  # of the same length


class Graph(Protocol):
    """Nodes and their neighbours; no node is its own neighbour."""

    def degrees(self, weights: np.ndarray) -> np.ndarray:
        """The summed weights of every node's neighbours."""

    def row(self, node: int) -> np.ndarray:
        """The neighbours of `node`, ascending."""

    def shares(self, nodes: np.ndarray, weights: np.ndarray) -> Contributions:
        """The neighbours of any of `nodes`, and the weights that `nodes` add to their degrees."""


def neighbours(units: Tensor, theta: float) -> Graph:
    """The graph of distinct directions units [M, d] on the CPU."""
    if bound(theta) > 1:
        return Lists([], [], len(units))
    m = len(units)
    rows, columns, most = [], [], m * m * DENSE
    for start, flat in _tiles(units, theta, triangle=True):
        row = flat // (m - start)  # row within the block
        column = flat - row * (m - start)
        above = column > row  # each pair once, without pairs of a node and itself
        rows.append((row[above] + start).astype(np.int32))
        columns.append((column[above] + start).astype(np.int32))
        most -= len(rows[-1])
        if most < 0:
            return Bits(units, theta)
    return Lists(rows, columns, m)


class Lists:
    """Lists of every node's neighbours, concatenated; made from ordered pairs with row < column, in parts."""

    def __init__(self, rows: list[np.ndarray], columns: list[np.ndarray], nodes: int):
        a, b = (np.concatenate([np.empty(0, np.int32), *side]) for side in (rows, columns))
        after, before = np.bincount(a, minlength=nodes), np.bincount(b, minlength=nodes)
        # the smaller neighbours of a node, then its larger neighbours; 16 bits are sorted by radix
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
        """The summed weights of every node's neighbours among `nodes`."""
        total = np.zeros(self.nodes)
        rows = block(self.nodes)
        for start in range(0, len(nodes), rows):
            part = nodes[start : start + rows]
            total += weights[part].astype(np.float64) @ self._unpacked(part)
        return total.astype(np.int64)

    def _unpacked(self, rows: int | np.ndarray) -> np.ndarray:
        return np.unpackbits(self.bits[rows], axis=-1, count=self.nodes, bitorder="little")


def rounded(units: Tensor) -> tuple[Tensor, float]:
    """Directions [M, d] for products, and the largest error of such a cosine."""
    # For vectors of length 1, a float32 component has a relative error of at most 2^-24, and a sum of d products an
    # error of at most d · 2^-24 in any order (times 1 + d · 2^-24). The rest covers the rounding of theta and of the
    # lengths.
    slack = 1.01 * (units.shape[1] + 6) * 2.0**-24
    single = torch.get_float32_matmul_precision() == "highest"  # else torch may compute float32 products from bfloat16
    return (units.float() if single else units), slack


def block(nodes: int) -> int:
    """Rows of similarities with `nodes` columns that are computed at once."""
    return max(TILE // max(nodes, 1), 1)


def _tiles(units: Tensor, theta: float, triangle: bool) -> Iterator[tuple[int, np.ndarray]]:
    """For each block of rows: its first row, and which of its similarities exceed theta, as indices into the flattened
    block [rows, M]; with `triangle` the columns begin at the first row.
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
