"""Greedy covers on a GPU: which vectors are neighbours (`neighbour_bits`), then rounds that pick many entries at once.

Equal directions need not be merged: they are neighbours with the same neighbours and the same degree, so the first of
them is picked and covers the others.

Picks that are far apart do not depend on each other. In each round every uncovered node votes for its best neighbour:
highest degree, then lowest index. A node with the votes of all its neighbours, itself included, is an entry: no node
that shares a neighbour with it comes before it, now or later, because degrees only fall. Picked one after the other, it
would have the same degree and cover the same nodes. The best of all nodes has all its votes, so every round picks.
"""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kvbench.methods.spindlekv.ops.greedy_cover import Covers
from kvbench.methods.spindlekv.ops.kernels.neighbour_bits import (
    EXACT,
    LANES,
    STAGES,
    adjacency,
    limits,
    tile,
    unit_directions,
)

WARPS = 8  # warps of a program that has all nodes of a set
WORDS = 1024  # words of 32 neighbours that a warp holds
NODES = 1024  # nodes that settle, or are sliced into bits, at once
PROGRAMS = 256  # programs per set that share a step of the first rounds
ROUNDS = 6  # number of shared rounds; later rounds have few nodes and one program per set


def greedy_covers(x: Tensor, lengths: Tensor, counts: Tensor, theta: float) -> Covers:
    """See `kvbench.methods.spindlekv.ops.greedy_cover.greedy_covers`."""
    x, lengths, counts = x.contiguous(), lengths.contiguous(), counts.contiguous()
    sets, n, d = x.shape
    side, warps = tile()
    words = triton.cdiv(n, side) * (side // 32)
    new = {"device": x.device}
    steps = torch.empty(sets, n, d, dtype=torch.int32, **new)
    halves = torch.empty(sets, n, 2, triton.cdiv(d, LANES) * LANES, dtype=torch.float16, **new)
    bits = torch.empty(sets, n, words, dtype=torch.int32, **new)  # read only for uncovered nodes
    left, degrees, votes, targets, members, picked = torch.empty(6, sets, n, dtype=torch.int32, **new)
    weight_bits, degree_bits = torch.empty(2, sets, 32, words, dtype=torch.int32, **new)
    owners = torch.empty(sets, n, dtype=torch.int64, **new)
    alive, weight_most, degree_most = torch.zeros(3, sets, dtype=torch.int32, **new)
    if sets and n:
        width = max(triton.next_power_of_2(d), LANES)
        padded = halves.shape[3]
        unit_directions[(triton.cdiv(n, 16), sets)](
            x, lengths, counts, steps, halves, left, members, picked, owners, alive, weight_most, n,
            D=d, PADDED=padded, WIDTH=width, ROWS=16,
        )  # fmt: skip
        adjacency[(triton.cdiv(n, side), triton.cdiv(n, side), sets)](
            halves, steps, lengths, bits, *limits(theta, d), n, words,
            D=d, PADDED=padded, TILE=side, EXACT=EXACT, LANES=LANES, num_warps=warps, num_stages=STAGES,
        )  # fmt: skip
        for step in ("weights", *("degrees", "slices", "votes", "settle") * ROUNDS, "finish"):
            alone = step in ("settle", "finish")
            constants = shape(words, alone)
            programs = 1 if alone else min(triton.cdiv(n, constants["BLOCK"]), PROGRAMS)
            cover[(programs, sets)](
                bits, lengths, left, weight_bits, weight_most, degrees, degree_bits, degree_most, votes, targets,
                members, picked, owners, alive, n, words, STEP=step, **constants,
            )  # fmt: skip
    # entries by their degree when picked, then by index
    order = picked.sort(dim=1, descending=True, stable=True).indices
    sizes = (picked > 0).sum(dim=1)
    places = torch.arange(n, **new)
    rank = torch.empty_like(order).scatter_(1, order, places.expand_as(order))
    entries = order.masked_fill_(places >= sizes[:, None], 0)
    references = rank.gather(1, owners).masked_fill_(places >= lengths[:, None], 0)
    return Covers(entries, sizes, references)


def shape(words: int, alone: bool) -> dict[str, int]:
    """Constants of a step for rows of `words` words: `alone` has WARPS warps, other steps as few as hold one row."""
    width = triton.next_power_of_2(words)
    warps = WARPS if alone else min(max(width // WORDS, 1), WARPS)
    return {"BLOCK": max(WORDS * warps // width, 1), "WIDTH": width, "NODES": NODES, "num_warps": warps}


@triton.jit
def cover(
    bits: tl.tensor, lengths: tl.tensor, left: tl.tensor, weight_bits: tl.tensor, weight_most: tl.tensor,
    degrees: tl.tensor, degree_bits: tl.tensor, degree_most: tl.tensor, votes: tl.tensor, targets: tl.tensor,
    members: tl.tensor, picked: tl.tensor, owners: tl.tensor, alive: tl.tensor, n: tl.tensor, words: tl.tensor,
    STEP: tl.constexpr, BLOCK: tl.constexpr, WIDTH: tl.constexpr, NODES: tl.constexpr,
) -> None:  # fmt: skip
    """One step of a round of one set, or all remaining rounds.

    members   the alive[set] nodes that are not covered yet
    left      weight of each node, 0 for a covered node; weight_bits has its bits, weight_most[set] is the largest
              weight in the first round
    degrees   of members: the summed weight of their uncovered neighbours; likewise degree_bits and degree_most
    """
    group = tl.program_id(1).to(tl.int64)
    length = tl.load(lengths + group).to(tl.int32)
    bits += group * n * words
    left += group * n
    weight_bits += group * 32 * words
    weight_most += group
    degrees += group * n
    degree_bits += group * 32 * words
    degree_most += group
    votes += group * n
    targets += group * n
    members += group * n
    picked += group * n
    owners += group * n
    alive += group
    count = tl.load(alive)
    if STEP == "weights":
        slices(left, left, weight_bits, weight_most, length, words, NODES)
    elif STEP == "degrees":
        set_degrees(
            bits, weight_bits, weight_most, degrees, degree_most, votes, members, count, length, words, BLOCK, WIDTH
        )
    elif STEP == "slices":
        slices(degrees, left, degree_bits, degree_most, length, words, NODES)
    elif STEP == "votes":
        vote(bits, left, degree_bits, degree_most, votes, targets, members, count, length, words, BLOCK, WIDTH)
    elif STEP == "settle":
        tl.store(alive, settle(left, degrees, votes, targets, members, picked, owners, count, NODES))
        tl.debug_barrier()  # all threads read what the others wrote
        slices(left, left, weight_bits, weight_most, length, words, NODES)
    else:
        while count > 0:
            set_degrees(
                bits, weight_bits, weight_most, degrees, degree_most, votes, members, count, length, words, BLOCK, WIDTH
            )
            tl.debug_barrier()
            slices(degrees, left, degree_bits, degree_most, length, words, NODES)
            tl.debug_barrier()
            vote(bits, left, degree_bits, degree_most, votes, targets, members, count, length, words, BLOCK, WIDTH)
            tl.debug_barrier()
            count = settle(left, degrees, votes, targets, members, picked, owners, count, NODES)
            tl.debug_barrier()
            slices(left, left, weight_bits, weight_most, length, words, NODES)
            tl.debug_barrier()


@triton.jit
def slices(
    values: tl.tensor, left: tl.tensor, sliced: tl.tensor, most: tl.tensor, length: tl.tensor, words: tl.tensor,
    NODES: tl.constexpr,
) -> None:  # fmt: skip
    """The values of uncovered nodes, bit by bit: bit j of row p of `sliced` is bit p of node j's value."""
    top = tl.load(most)
    for first in range(tl.program_id(0) * NODES, length, tl.num_programs(0) * NODES):
        nodes = first + tl.arange(0, NODES)
        uncovered = tl.load(left + nodes, mask=nodes < length, other=0) > 0
        value = tl.reshape(tl.load(values + nodes, mask=uncovered, other=0), (NODES // 32, 32))
        word = first // 32 + tl.arange(0, NODES // 32)
        place = 0
        while (top >> place) > 0:
            ones = ((value >> place) & 1) << tl.arange(0, 32)[None, :]
            tl.store(sliced + place * words + word, tl.sum(ones, 1), mask=word < words)
            place += 1


@triton.jit
def set_degrees(
    bits: tl.tensor, weight_bits: tl.tensor, weight_most: tl.tensor, degrees: tl.tensor, degree_most: tl.tensor,
    votes: tl.tensor, members: tl.tensor, count: tl.tensor, length: tl.tensor, words: tl.tensor, BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:  # fmt: skip
    """Write the degrees of members[:count], BLOCK at a time, and set their votes to 0."""
    top = tl.load(weight_most)
    for first in range(tl.program_id(0) * BLOCK, count, tl.num_programs(0) * BLOCK):
        slots = first + tl.arange(0, BLOCK)
        rows = tl.load(members + slots, mask=slots < count, other=0)
        word = tl.arange(0, WIDTH)
        held = neighbours(bits, rows, word, length, words)
        total = tl.zeros([BLOCK, WIDTH], tl.int32)
        place = 0
        while (top >> place) > 0:
            weighty = tl.load(weight_bits + place * words + word, mask=word * 32 < length, other=0)
            total += ones(held & weighty[None, :]) << place
            place += 1
        degree = tl.where(slots < count, tl.sum(total, 1), 0)
        tl.store(degrees + rows, degree, mask=slots < count)
        tl.store(votes + rows, tl.zeros_like(rows), mask=slots < count)
        tl.atomic_max(degree_most, tl.max(degree, 0), sem="relaxed")  # degrees fall, so the first round's maximum stays


@triton.jit
def vote(
    bits: tl.tensor, left: tl.tensor, degree_bits: tl.tensor, degree_most: tl.tensor, votes: tl.tensor,
    targets: tl.tensor, members: tl.tensor, count: tl.tensor, length: tl.tensor, words: tl.tensor, BLOCK: tl.constexpr,
    WIDTH: tl.constexpr,
) -> None:  # fmt: skip
    """Write the best neighbour of each of members[:count], and add the member's weight to this neighbour's votes."""
    top = tl.load(degree_most)
    for first in range(tl.program_id(0) * BLOCK, count, tl.num_programs(0) * BLOCK):
        slots = first + tl.arange(0, BLOCK)
        rows = tl.load(members + slots, mask=slots < count, other=0)
        word = tl.arange(0, WIDTH)
        best = neighbours(bits, rows, word, length, words)
        place = 31
        while place > 0:
            place -= 1
            if (top >> place) > 0:
                # of the neighbours whose degrees agree in all higher bits, keep those with this bit, if there are any
                higher = best & tl.load(degree_bits + place * words + word, mask=word * 32 < length, other=0)[None, :]
                some = tl.max((higher != 0).to(tl.int32), 1) > 0
                best = tl.where(some[:, None], higher, best)
        # the lowest neighbour of the highest degree
        least = tl.min(tl.where(best != 0, word[None, :], WIDTH), 1)
        held = tl.sum(tl.where(word[None, :] == least[:, None], best, 0), 1)
        target = least * 32 + ones((held & -held) - 1)
        tl.store(targets + rows, target, mask=slots < count)
        weights = tl.load(left + rows, mask=slots < count, other=0)
        tl.atomic_add(votes + target, weights, mask=slots < count, sem="relaxed")


@triton.jit
def neighbours(bits: tl.tensor, rows: tl.tensor, word: tl.tensor, length: tl.tensor, words: tl.tensor) -> tl.tensor:
    """Words `word` of the neighbour bits of `rows`."""
    return tl.load(bits + rows[:, None].to(tl.int64) * words + word[None, :], mask=word[None, :] * 32 < length, other=0)


@triton.jit
def ones(words: tl.tensor) -> tl.tensor:
    """How many bits of each word are 1."""
    x = words.to(tl.uint32, bitcast=True)
    x -= (x >> 1) & 0x55555555
    x = (x & 0x33333333) + ((x >> 2) & 0x33333333)
    x = (x + (x >> 4)) & 0x0F0F0F0F
    return ((x * 0x01010101) >> 24).to(tl.int32)


@triton.jit
def settle(
    left: tl.tensor, degrees: tl.tensor, votes: tl.tensor, targets: tl.tensor, members: tl.tensor, picked: tl.tensor,
    owners: tl.tensor, count: tl.tensor, NODES: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Cover the neighbours of nodes with all votes; move the other nodes up in `members` and return their number."""
    kept = tl.full([], 0, tl.int32)
    for first in range(0, count, NODES):
        slots = first + tl.arange(0, NODES)
        inside = slots < count
        rows = tl.load(members + slots, mask=inside, other=0)
        target = tl.load(targets + rows, mask=inside, other=0)
        degree = tl.load(degrees + target, mask=inside, other=0)
        covered = inside & (tl.load(votes + target, mask=inside, other=0) == degree)
        tl.store(owners + rows, target.to(tl.int64), mask=covered)
        tl.store(picked + rows, degree, mask=covered & (target == rows))
        tl.store(left + rows, tl.zeros_like(rows), mask=covered)
        stay = (inside & (covered == 0)).to(tl.int32)
        place = kept + tl.cumsum(stay, 0) - 1
        tl.debug_barrier()  # all threads have read the members that are overwritten next
        tl.store(members + place, rows, mask=stay > 0)
        kept += tl.sum(stay, 0)
    return kept
