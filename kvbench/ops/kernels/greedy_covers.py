"""Greedy covers on a GPU: directions, adjacency in bits, then one program per set that picks its entries.

Every similarity is exact: products of components on the grid are added in float64, which does not round them. So is the
squared distance of two directions, 0 where they are equal. Equal directions need not be merged here: as neighbours with
the same neighbours they have the same degree, so the first of them is picked and covers the others.
"""

import math

import torch
import triton
import triton.language as tl
from torch import Tensor

from kvbench.ops.directions import bound

TILE = 64  # vectors on either side of a tile of similarities
MEMBERS = 32  # covered nodes whose neighbours lose degree at once
WORDS = 16  # words of 32 nodes whose degrees are updated at once
WARPS = 8  # of a program that picks entries


def greedy_covers(x: Tensor, lengths: Tensor, counts: Tensor, theta: float) -> tuple[Tensor, Tensor, Tensor]:
    """See `kvbench.ops.greedy_cover.greedy_covers`."""
    x, counts = x.contiguous(), counts.contiguous()
    sets, n, d = x.shape
    tiles = triton.cdiv(n, TILE)
    words = tiles * (TILE // 32)
    new = {"device": x.device}
    units = torch.empty(sets, n, d, dtype=torch.float64, **new)
    squares = torch.empty(sets, n, dtype=torch.float64, **new)
    bits = torch.empty(sets, n, words, dtype=torch.int32, **new)  # read only where nodes are uncovered
    degrees = torch.zeros(sets, n, dtype=torch.int32, **new)  # 0 from when a node is covered
    picked = torch.zeros(sets, n, dtype=torch.int32, **new)  # degree at which a node became an entry
    owners = torch.zeros(sets, n, dtype=torch.int64, **new)
    members = torch.empty(sets, n, dtype=torch.int32, **new)
    if sets and n:
        width = triton.next_power_of_2(max(d, 2))
        limit = math.floor(min(bound(theta), 4.0) * 2**50)  # similarities are multiples of 2^-50
        unit_directions[(triton.cdiv(n, 16), sets)](x, units, squares, n, D=d, WIDTH=width, ROWS=16)
        adjacency[(tiles, tiles, sets)](
            units, squares, lengths, counts, bits, degrees, limit, n, words, D=d, TILE=TILE, LANES=16
        )
        cover[(sets,)](
            bits, counts, degrees, picked, owners, members, n, words, MEMBERS=MEMBERS, WORDS=WORDS, num_warps=WARPS
        )
    # entries by degree when they were picked, equal ones by index
    order = picked.sort(dim=1, descending=True, stable=True).indices
    sizes = (picked > 0).sum(dim=1)
    places = torch.arange(n, **new)
    rank = torch.empty_like(order).scatter_(1, order, places.expand_as(order))
    entries = order.masked_fill_(places >= sizes[:, None], 0)
    references = rank.gather(1, owners).masked_fill_(places >= lengths[:, None], 0)
    return entries, sizes, references


@triton.jit
def unit_directions(x, units, squares, n, D: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    """Unit vectors on the grid and their squared lengths, of ROWS rows of one set."""
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    lanes = tl.arange(0, WIDTH)[None, :]
    at = tl.program_id(1).to(tl.int64) * n + rows
    inside = (rows[:, None] < n) & (lanes < D)
    values = tl.load(x + at[:, None] * D + lanes, mask=inside, other=0.0).to(tl.float32).to(tl.float64)
    norms = tl.maximum(tl.sqrt(halves_added(values * values, ROWS, WIDTH)), 2.0**-126)
    scaled = values / norms * 33554432.0
    # adding and subtracting 1.5 · 2^52 rounds to an integer, halves to even
    grid = (scaled + 6755399441055744.0 - 6755399441055744.0) / 33554432.0
    tl.store(units + at[:, None] * D + lanes, grid, mask=inside)
    tl.store(squares + at, tl.sum(grid * grid, 1), mask=rows < n)


@triton.jit
def halves_added(terms, ROWS: tl.constexpr, WIDTH: tl.constexpr):
    """Sums of terms [ROWS, WIDTH] over the last dimension in the order of `square_sums`: [ROWS, 1]."""
    if WIDTH > 1:
        pairs = tl.reshape(terms, (ROWS, 2, WIDTH // 2))
        return halves_added(tl.sum(pairs, 1), ROWS, WIDTH // 2)
    else:
        return terms


@triton.jit(do_not_specialize=["limit"])
def adjacency(
    units,
    squares,
    lengths,
    counts,
    bits,
    degrees,
    limit,
    n,
    words,
    D: tl.constexpr,
    TILE: tl.constexpr,
    LANES: tl.constexpr,
):
    """Which nodes of two tiles are neighbours, as bits in the rows of both, and what it adds to their degrees."""
    left = tl.program_id(0)
    right = tl.program_id(1)
    group = tl.program_id(2).to(tl.int64)
    length = tl.load(lengths + group).to(tl.int32)
    if (right >= left) & (right * TILE < length):
        rows = left * TILE + tl.arange(0, TILE)
        columns = right * TILE + tl.arange(0, TILE)
        lanes = tl.arange(0, LANES)
        units += group * n * D
        squares += group * n
        counts += group * n
        degrees += group * n
        bits += group * n * words
        cosines = tl.zeros([TILE, TILE], tl.float64)
        for lane in range(0, D, LANES):
            here = lane + lanes < D
            a = tl.load(
                units + rows[:, None].to(tl.int64) * D + lane + lanes[None, :],
                mask=(rows[:, None] < length) & here[None, :],
                other=0.0,
            )
            b = tl.load(
                units + columns[None, :].to(tl.int64) * D + lane + lanes[:, None],
                mask=(columns[None, :] < length) & here[:, None],
                other=0.0,
            )
            cosines = tl.dot(a, b, cosines, out_dtype=tl.float64)
        own = tl.load(squares + rows, mask=rows < length, other=0.0)
        other = tl.load(squares + columns, mask=columns < length, other=0.0)
        near = cosines * 1125899906842624.0 > limit.to(tl.float64)
        near = near | (own[:, None] + other[None, :] - 2.0 * cosines == 0.0)
        near = near & (rows[:, None] < length) & (columns[None, :] < length)
        set_bits(near, counts, bits, degrees, rows, columns, right, length, words, TILE)
        if right > left:
            set_bits(tl.trans(near), counts, bits, degrees, columns, rows, left, length, words, TILE)


@triton.jit
def set_bits(near, counts, bits, degrees, rows, columns, tile, length, words, TILE: tl.constexpr):
    """Write near [TILE, TILE] of `rows` and of the columns of tile `tile`."""
    weights = tl.load(counts + columns, mask=columns < length, other=0).to(tl.int32)
    tl.atomic_add(degrees + rows, tl.sum(near.to(tl.int32) * weights[None, :], 1), mask=rows < length)
    each = tl.reshape(near.to(tl.int32), (TILE, TILE // 32, 32)) << tl.arange(0, 32)[None, None, :]
    word = tile * (TILE // 32) + tl.arange(0, TILE // 32)
    where = bits + rows[:, None].to(tl.int64) * words + word[None, :]
    tl.store(where, tl.sum(each, 2), mask=(rows[:, None] < length))


@triton.jit
def cover(bits, counts, degrees, picked, owners, members, n, words, MEMBERS: tl.constexpr, WORDS: tl.constexpr):
    """Pick the entries of one set: the node of the highest degree, then degrees fall by what it covers; repeat.

    A node without uncovered neighbours is an entry at once, out of turn: it changes no degree.
    """
    group = tl.program_id(0).to(tl.int64)
    bits += group * n * words
    counts += group * n
    degrees += group * n
    picked += group * n
    owners += group * n
    members += group * n
    best = lower(bits, counts, degrees, picked, owners, members, 0, n, words, MEMBERS, WORDS)
    tl.debug_barrier()  # what all threads wrote is read by all
    while best > 0:
        node = 0x7FFFFFFF - (best & 0x7FFFFFFF)
        tl.store(picked + node, (best >> 32).to(tl.int32))
        covered = 0
        for word in range(0, words, WORDS):
            nodes = word * 32 + tl.arange(0, WORDS * 32)
            inside = nodes < n
            near = tl.load(bits + node * words + nodes // 32, mask=inside, other=0) >> (nodes % 32)
            new = ((near & 1) != 0) & (tl.load(degrees + nodes, mask=inside, other=0) > 0)
            place = covered + tl.cumsum(new.to(tl.int32), 0) - 1
            tl.store(members + place, nodes, mask=new)
            tl.store(owners + nodes, tl.zeros_like(nodes).to(tl.int64) + node, mask=new)
            tl.store(degrees + nodes, tl.zeros_like(nodes), mask=new)
            covered += tl.sum(new.to(tl.int32), 0)
        tl.debug_barrier()
        best = lower(bits, counts, degrees, picked, owners, members, covered, n, words, MEMBERS, WORDS)
        tl.debug_barrier()


@triton.jit
def lower(
    bits, counts, degrees, picked, owners, members, covered, n, words, MEMBERS: tl.constexpr, WORDS: tl.constexpr
):
    """Take the newly covered members[:covered] out of all degrees; the highest then, and its lowest node, or 0.

    degree · 2^32 + 2^31 - 1 - node.
    """
    best = tl.full([], 0, tl.int64)
    for word in range(0, words, WORDS):
        nodes = tl.reshape(word * 32 + tl.arange(0, WORDS * 32), (WORDS, 32))
        inside = nodes < n
        fall = tl.zeros([WORDS, 32], tl.int32)
        each = word + tl.arange(0, WORDS)
        for first in range(0, covered, MEMBERS):
            slots = first + tl.arange(0, MEMBERS)
            who = tl.load(members + slots, mask=slots < covered, other=0)
            weights = tl.load(counts + who, mask=slots < covered, other=0).to(tl.int32)
            held = tl.load(
                bits + who[:, None].to(tl.int64) * words + each[None, :], mask=each[None, :] < words, other=0
            )
            ones = (held[:, :, None] >> tl.arange(0, 32)[None, None, :]) & 1
            fall += tl.sum(ones * weights[:, None, None], 0)
        degree = tl.load(degrees + nodes, mask=inside, other=0)
        weight = tl.load(counts + nodes, mask=inside, other=0).to(tl.int32)
        left = tl.where(degree > 0, degree - fall, 0)
        alone = (left > 0) & (left == weight)
        tl.store(picked + nodes, weight, mask=alone)
        tl.store(owners + nodes, nodes.to(tl.int64), mask=alone)
        left = tl.where(alone, 0, left)
        tl.store(degrees + nodes, left, mask=inside)
        key = tl.where(left > 0, (left.to(tl.int64) << 32) + (0x7FFFFFFF - nodes), 0)
        best = tl.maximum(best, tl.max(tl.reshape(key, (WORDS * 32,)), 0))
    return best
