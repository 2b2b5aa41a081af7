"""Greedy covers on the CPU: the graph as bits, which vector instructions read."""

from functools import partial

import numpy as np
import torch
import torch.nn.functional as F
from numba import prange
from torch import Tensor

from kvbench.methods.spindlekv.ops.compiled.loops import loop, shared
from kvbench.methods.spindlekv.ops.greedy_cover import Covers, Nodes, Picks, covers
from kvbench.methods.spindlekv.ops.neighbours import TILE, rounded
from kvbench.ops.directions import GRID, TINY, bound

WORD = 32  # nodes of one word of bits
BLOCK = 8 * WORD  # nodes of a block, whose largest degree is stored
BITS = np.uint32(1) << np.arange(WORD, dtype=np.uint32)


def greedy_covers(x: Tensor, lengths: Tensor, counts: Tensor, theta: float) -> Covers:
    """See `kvbench.methods.spindlekv.ops.greedy_cover`. A graph takes M²/8 bytes."""
    return covers(x, lengths, counts, steps, distinct, lambda units, weights: pick(graph(units, theta), weights))


def steps(x: Tensor) -> np.ndarray:
    rows = np.empty(x.shape, np.int32)
    on_grid(x.float().contiguous().numpy(), rows)
    return rows


def distinct(rows: np.ndarray, counts: np.ndarray) -> Nodes:
    n = len(rows)
    first, weights, nodes = (np.zeros(n, np.int64) for _ in range(3))
    table = np.full(1 << max(2 * n - 1, 1).bit_length(), -1, np.int64)  # at most half full
    m = merge(rows, counts, table, first, weights, nodes)
    return Nodes(first[:m], weights[:m], nodes)


def graph(units: Tensor, theta: float) -> np.ndarray:
    """Whether the cosine of two different directions, units [M, d], exceeds theta: bits uint32 [M', M' / 32], the first
    node in the lowest bit; M' is M rounded up to whole words."""
    m = len(units)
    size = -(-m // WORD) * WORD
    bits = np.zeros((size, size // WORD), np.uint32)
    if bound(theta) > 1:
        return bits
    units = F.pad(units, (0, 0, 0, size - m))
    vectors, slack = rounded(units)
    low = np.nextafter(np.float32(theta - slack), np.float32(-2))
    high = np.nextafter(np.float32(theta + slack), np.float32(2))
    step = max(TILE // max(size, 1) // WORD, 1) * WORD
    similarities = vectors.new_empty(min(step, size) * size)
    for start in range(0, size, step):
        block = vectors[start : start + step]
        cosines = similarities[: len(block) * (size - start)].view(len(block), -1)
        torch.mm(block, vectors[start:].T, out=cosines)
        mark(cosines.numpy(), start, m, units.numpy(), low, high, theta, bits, BITS)
    mirror(bits, WORD)
    return bits


def pick(bits: np.ndarray, weights: np.ndarray) -> Picks:
    m = len(weights)
    owners, order = np.zeros(len(bits), np.int64), np.empty(m, np.int64)
    padded = np.zeros(len(bits), np.int32)
    padded[:m] = weights
    degrees = padded.copy()
    add_neighbours(bits, padded, degrees, WORD)
    picked = cover(bits, padded, degrees, owners, order, WORD)
    return Picks(owners[:m], order[:picked])


@partial(shared, fastmath=False)  # the sums' order matters
def on_grid(x: np.ndarray, rows: np.ndarray) -> None:
    """Write `in_steps` of x [N, d] to rows."""
    n, d = x.shape
    width = 1  # a power of 2
    while width < d:
        width *= 2
    for i in prange(n):
        squares = np.zeros(width)
        for c in range(d):
            squares[c] = np.float64(x[i, c]) * np.float64(x[i, c])
        half = width // 2
        while half:
            for c in range(half):
                squares[c] += squares[half + c]
            half //= 2
        norm = max(np.sqrt(squares[0]), TINY)
        for c in range(d):
            rows[i, c] = np.int32(np.rint(np.float64(x[i, c]) / norm * GRID))


@loop
def merge(
    rows: np.ndarray, counts: np.ndarray, table: np.ndarray, first: np.ndarray, weights: np.ndarray, nodes: np.ndarray,
) -> int:  # fmt: skip
    """Writes what `distinct` returns, and returns the number of nodes."""
    n, width = rows.shape
    last, m = len(table) - 1, 0
    for i in range(n):
        number = np.uint64(width)
        for c in range(width):
            number = (number ^ np.uint64(np.uint32(rows[i, c]))) * np.uint64(0x9E3779B97F4A7C15)
            number ^= number >> np.uint64(32)
        slot = np.int64(number & np.uint64(last))
        while True:
            node = table[slot]
            if node < 0:
                table[slot] = node = m
                first[m] = i
                m += 1
                break
            equal = True
            for c in range(width):
                if rows[first[node], c] != rows[i, c]:
                    equal = False
                    break
            if equal:
                break
            slot = (slot + 1) & last
        nodes[i] = node
        weights[node] += counts[i]
    return m


@shared
def mark(
    cosines: np.ndarray, start: int, m: int, units: np.ndarray, low: float, high: float, theta: float, bits: np.ndarray,
    values: np.ndarray,
) -> None:  # fmt: skip
    """Write the bits of the nodes from `start` on, only for larger neighbours, from cosines with nodes from `start` on.

    values: values of the bits of a word. Numba compiles loops over an argument's length to vector instructions, but not
    loops of constant length.
    """
    size = len(values)
    for r in prange(min(len(cosines), m - start)):
        i = start + r
        for word in range(i // WORD, bits.shape[1]):
            begin = word * WORD
            row = cosines[r, begin - start :]
            above = np.uint32(0)
            for k in range(size):
                above += values[k] if row[k] > low else np.uint32(0)
            if above == 0:
                continue
            if begin <= i:
                above &= np.uint32(0xFFFFFFFE) << np.uint32(i - begin)  # only larger nodes
            if begin + WORD > m:
                above &= ~(np.uint32(0xFFFFFFFF) << np.uint32(m - begin))  # only existing nodes
            near = np.uint32(0)
            for k in range(size):
                near += values[k] if row[k] <= high else np.uint32(0)
            near &= above
            k = 0
            while near:
                if near & np.uint32(1):
                    exact = 0.0
                    for c in range(units.shape[1]):
                        exact += units[i, c] * units[begin + k, c]
                    if exact <= theta:
                        above ^= np.uint32(1) << np.uint32(k)
                near >>= np.uint32(1)
                k += 1
            bits[i, word] = above


@shared
def mirror(bits: np.ndarray, size: int) -> None:
    """Copy the bit of every pair of a smaller and a larger node to the row of the larger node."""
    words = bits.shape[1]
    for place in prange(words):
        high = place // 2 if place % 2 else words - 1 - place // 2  # long and short rows alternate
        turned = np.empty(WORD, np.uint32)
        for low in range(high + 1):
            turned[:] = 0
            for r in range(WORD):
                word = bits[low * WORD + r, high]
                if word:
                    for k in range(size):
                        turned[k] |= ((word >> np.uint32(k)) & np.uint32(1)) << np.uint32(r)
            for k in range(WORD):
                bits[high * WORD + k, low] |= turned[k]


@shared
def add_neighbours(bits: np.ndarray, weights: np.ndarray, degrees: np.ndarray, size: int) -> None:
    """Add to each node's degree the weights of its neighbours."""
    words = bits.shape[1]
    for i in prange(len(weights)):
        degree = np.int32(0)
        for word in range(words):
            near = bits[i, word]
            if near:
                for k in range(size):
                    degree += np.int32((near >> np.uint32(k)) & np.uint32(1)) * weights[word * WORD + k]
        degrees[i] += degree


@loop
def cover(
    bits: np.ndarray, weights: np.ndarray, degrees: np.ndarray, owners: np.ndarray, order: np.ndarray, size: int,
) -> int:  # fmt: skip
    """Write the picked entries to `order` and the place of each node's entry in it to `owners`; return their number."""
    nodes, words = bits.shape
    left = np.full(words, 0xFFFFFFFF, np.uint32)  # not covered yet
    members = np.empty(nodes, np.int64)
    blocks = -(-nodes // BLOCK)
    most = np.empty(blocks, np.int32)  # the largest degree of a block of nodes
    changed = np.ones(blocks, np.bool_)
    picked = 0
    while True:
        where = 0
        for block in range(blocks):
            if changed[block]:
                changed[block] = False
                most[block] = largest(degrees[block * BLOCK : (block + 1) * BLOCK])
            if most[block] > most[where]:
                where = block
        if nodes == 0 or most[where] == 0:
            return picked
        entry = where * BLOCK
        while degrees[entry] != most[where]:
            entry += 1
        count = 0
        for word in range(words):
            near = bits[entry, word] & left[word]
            if word == entry // WORD:
                near |= np.uint32(1) << np.uint32(entry % WORD)
            if near:
                left[word] &= ~near
                changed[word * WORD // BLOCK] = True
                for k in range(WORD):
                    if (near >> np.uint32(k)) & np.uint32(1):
                        members[count] = word * WORD + k
                        count += 1
        for place in range(count):
            node = members[place]
            owners[node] = picked
            degrees[node] = 0
        for place in range(count):
            node = members[place]
            weight = weights[node]
            for word in range(words):
                near = bits[node, word] & left[word]
                if near:
                    changed[word * WORD // BLOCK] = True
                    for k in range(size):
                        degrees[word * WORD + k] -= np.int32((near >> np.uint32(k)) & np.uint32(1)) * weight
        order[picked] = entry
        picked += 1


@loop
def largest(x: np.ndarray) -> np.int32:
    most: np.int32 = x[0]
    for i in range(1, len(x)):
        most = max(most, x[i])
    return most
