"""Greedy cover: a few of many vectors that represent all of them by cosine similarity (SpindleKV's algorithm 1)."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor

from kvbench.methods.spindlekv.ops.neighbours import Graph, neighbours
from kvbench.ops.directions import GRID, in_steps
from kvbench.ops.operator import operator


@dataclass(frozen=True)
class Cover:
    """The vectors that represent all others, in the order in which the greedy rule picks them."""

    entries: Tensor  # [|C|] indices of the vectors picked
    references: Tensor  # [N] the entry of every vector


class Covers(NamedTuple):
    """The covers of B sets: int64, padded with 0."""

    entries: Tensor  # [B, N] the rows picked, in the order of picking
    sizes: Tensor  # [B] how many rows were picked
    references: Tensor  # [B, N] the index in `entries` of every row's entry


class Nodes(NamedTuple):
    """Equal rows merged to M nodes, in order of first occurrence."""

    first: np.ndarray  # [M] the first row of each node
    weights: np.ndarray  # [M] the summed counts of each node's rows
    of_rows: np.ndarray  # [N] the node of each row


class Picks(NamedTuple):
    owners: np.ndarray  # [M] the index in `order` of every node's entry
    order: np.ndarray  # [|C|] the nodes picked


def greedy_cover(x: Tensor, theta: float, counts: Tensor | None = None) -> Cover:
    """The cover of the single set x [N, d], in which row i stands for counts[i] copies: see `greedy_covers`."""
    n = len(x)
    counts = torch.ones(n, dtype=torch.long, device=x.device) if counts is None else counts.long()
    lengths = torch.full((1,), n, device=x.device)
    entries, sizes, references = greedy_covers(x[None], lengths, counts[None], float(theta))
    return Cover(entries[0, : int(sizes[0])], references[0])


def _fake(x: Tensor, lengths: Tensor, counts: Tensor, theta: float) -> Covers:
    return Covers(counts.new_empty(counts.shape), lengths.new_empty(lengths.shape), counts.new_empty(counts.shape))


@operator(launches=39, fake=_fake)
def greedy_covers(x: Tensor, lengths: Tensor, counts: Tensor, theta: float) -> Covers:
    """Algorithm 1 of SpindleKV (Tang et al. 2025, §3.4), for each of B sets of vectors separately.

    x [B, N, d] of any dtype; the first lengths[b] rows (int64 [B]) are set b. Degrees are those of the graph G
    (equation 10). Repeatedly, the uncovered vector with the most uncovered neighbours (cosine > theta, itself included)
    becomes an entry, and these neighbours refer to it; ties go to the lowest index. Vectors of equal direction are
    always neighbours, also zero vectors.

    counts int64 [B, N], at least 1: how many copies each vector stands for (unfolded GQA heads). The result is the same
    as for the copies written one after the other. Vectors of equal direction have the same neighbours, so they are one
    node with their summed weight.
    """
    return covers(
        x, lengths, counts, _steps, _distinct, lambda units, weights: _greedy(neighbours(units, theta), weights)
    )


def covers(
    x: Tensor,
    lengths: Tensor,
    counts: Tensor,
    steps: Callable[[Tensor], np.ndarray],
    distinct: Callable[[np.ndarray, np.ndarray], Nodes],
    greedy: Callable[[Tensor, np.ndarray], Picks],
) -> Covers:
    """The results of `greedy_covers`, computed for one set after the other on the host.

    steps(x)                      the directions of x [N, d] in steps of the grid, int32 [N, d].
    distinct(rows, counts)        the nodes of rows int32 [N, d] with counts int64 [N].
    greedy(directions, weights)   the picked nodes of directions [M, d] with weights [M].
    """
    entries, references = torch.zeros_like(counts), torch.zeros_like(counts)
    sizes = torch.zeros_like(lengths)
    for b, n in enumerate(lengths.tolist()):
        rows = steps(x[b, :n])
        nodes = distinct(rows, counts[b, :n].cpu().numpy())
        owners, order = greedy(torch.from_numpy(rows[nodes.first] / GRID), nodes.weights)
        sizes[b] = len(order)
        entries[b, : len(order)] = torch.from_numpy(nodes.first[order])
        references[b, :n] = torch.from_numpy(owners[nodes.of_rows])
    return Covers(entries, sizes, references)


def _steps(x: Tensor) -> np.ndarray:
    return in_steps(x).to(torch.int32).cpu().numpy()


def _distinct(integers: np.ndarray, counts: np.ndarray) -> Nodes:
    rows = integers.view(np.dtype((np.void, integers.dtype.itemsize * integers.shape[1])))[:, 0]
    _, first, inverse = np.unique(rows, return_index=True, return_inverse=True)
    order = first.argsort()
    nodes = order.argsort()[inverse]
    return Nodes(first[order], np.bincount(nodes, counts, len(first)).astype(np.int64), nodes)


def _greedy(graph: Graph, weights: np.ndarray) -> Picks:
    """The nodes of a graph picked by degree.

    Degrees only fall, so they are updated by subtraction, once per node in total. A node without other neighbours
    changes no degree and is settled at once, out of turn. The order is restored at the end: degrees at the time of
    picking never rise, and equal degrees are ordered by index.
    """
    m = len(weights)
    everyone = np.arange(m)
    degrees = weights + graph.degrees(weights)
    owner = everyone.copy()
    degree_when_picked = degrees.copy()
    alive = degrees > weights  # not settled yet; settled nodes have degree 0
    degrees[~alive] = 0
    while m and degrees[pick := int(degrees.argmax())]:
        members = graph.row(pick)
        members = members[alive[members]]
        owner[members] = pick
        degree_when_picked[pick] = degrees[pick]
        alive[pick] = alive[members] = False
        degrees[pick] = degrees[members] = 0
        columns, shares = graph.shares(members, weights)
        touched = alive[columns]
        columns = columns[touched]
        np.subtract.at(degrees, columns, shares[touched])
        loners = columns[degrees[columns] == weights[columns]]
        degree_when_picked[loners] = weights[loners]
        alive[loners] = False
        degrees[loners] = 0

    picked = everyone[owner == everyone]
    order = picked[np.lexsort((picked, -degree_when_picked[picked]))]
    rank = np.empty(m, dtype=np.int64)
    rank[order] = np.arange(len(order))
    return Picks(rank[owner], order)
