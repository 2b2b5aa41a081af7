"""Neighbours on a GPU, as bits: directions, then tiles of similarities.

The result is exact. Tensor cores compute similarities up to a known error. A tile with a similarity so near to theta
that this error matters is computed again in float64, which does not round sums of products on the grid.
"""

import math
from typing import NamedTuple

import triton
import triton.language as tl
from triton.runtime import driver

from kvbench.ops.directions import bound

EXACT = 64  # vectors on either side of a tile in float64
LANES = 16  # components that a tile processes at once; twice as many need too many registers of an A100
STAGES = 3


class Tile(NamedTuple):
    """A tile of similarities: vectors on either side, and warps of its program."""

    side: int
    warps: int


TILE = Tile(128, 8)
# Before Triton 3.9 the compiler fails on such tiles in Blackwell's tensor memory (compute capability 10 and 11), which
# it uses for programs of 4 and 8 warps. Programs of 16 warps have half of the registers per thread: tiles are smaller.
NO_TENSOR_MEMORY = tuple(map(int, triton.__version__.split(".")[:2])) < (3, 9)
WITHOUT_TENSOR_MEMORY = Tile(64, 16)


def tile() -> Tile:
    """The tile for the current GPU."""
    if not NO_TENSOR_MEMORY or triton.knobs.runtime.interpret:
        return TILE
    target = driver.active.get_current_target()  # an AMD GPU's arch is a name
    return WITHOUT_TENSOR_MEMORY if target.backend == "cuda" and 100 <= target.arch < 120 else TILE


def limits(theta: float, d: int) -> tuple[int, float, float]:
    """The largest similarity that is not above theta, in steps of 2^-50; and bounds below and above it, in 2^-22.

    A similarity from tensor cores above the upper bound is above theta. A similarity below the lower bound is not, and
    is not of equal directions, which are neighbours for any theta.
    """
    largest = math.floor(min(bound(theta), 4.0) * 2**50)
    # equal directions have length 1 up to the grid's rounding: a similarity above 1 - √d · 2^-25
    below, above = min(theta, 1 - 2.0**-18) - slack(d), min(bound(theta), 4.0) + slack(d)
    return largest, below * 2**22, above * 2**22


def slack(d: int) -> float:
    """Upper bound of the error of a similarity from tensor cores, for d components.

    A component x on the grid is h + r: h is a multiple of 2^-11, |r| at most 2^-12. In float16 h is exact, and r is
    rounded to l with |l - r| at most 2^-24 (11 of its 14 bits). |.| of a vector is its length: |x| is 1 up to 2^-20, so
    |h| < 1.02 while √d · 2^-12 < 0.019; |r| and |l| are at most √d · 2^-12.

    h·h' is exact: multiples of 2^-22 with sums below 2 fit in float32's 24 bits, in any order and with any rounding.
    r·r' is left out: at most d · 2^-24. l instead of r: |h| |l' - r'| + |l - r| |h'|, at most 1.02 · 2 √d · 2^-24.
    h·l' + l·h': 2d exact products, whose sums of magnitudes are below 1.02 · 2 √d · 2^-12. Tensor cores may truncate
    each addend to float32's precision, 2^-23 of the largest, and each sum as well: at most 2 · 2^-23 of this bound for
    each of the 2d products, in total 1.02 · d √d · 2^-32.
    4 · 2^-24: rounding of the sum of both and of the limits.
    """
    return 1.02 * (d + 2 * math.sqrt(d) + d * math.sqrt(d) / 256 + 4) * 2.0**-24


@triton.jit
def unit_directions(
    x: tl.tensor, lengths: tl.tensor, counts: tl.tensor, steps: tl.tensor, halves: tl.tensor, left: tl.tensor,
    members: tl.tensor, picked: tl.tensor, owners: tl.tensor, alive: tl.tensor, weight_most: tl.tensor, n: tl.tensor,
    D: tl.constexpr, PADDED: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
) -> None:  # fmt: skip
    """Directions of ROWS rows of one set, in steps of the grid and as two float16; initial values of its cover."""
    group = tl.program_id(1).to(tl.int64)
    rows = tl.program_id(0) * ROWS + tl.arange(0, ROWS)
    lanes = tl.arange(0, WIDTH)[None, :]
    at = group * n + rows
    inside = (rows[:, None] < n) & (lanes < D)
    values = tl.load(x + at[:, None] * D + lanes, mask=inside, other=0.0).to(tl.float32).to(tl.float64)
    norms = tl.sqrt(halves_added(values * values, ROWS, WIDTH))
    scaled = values / tl.maximum(norms, 2.0**-126) * 33554432.0
    # adding and subtracting 1.5 · 2^52 rounds to an integer, halves to even
    rounded = (scaled + 6755399441055744.0 - 6755399441055744.0).to(tl.int32)
    upper = (rounded + 8192) >> 14
    lower = rounded - (upper << 14)
    # The similarity of equal directions shorter than 1, such as zero vectors, does not show that they are equal: NaN
    # makes it uncertain.
    upper = tl.where(norms < 2.0**-126, float("nan"), upper.to(tl.float32))
    tl.store(steps + at[:, None] * D + lanes, rounded, mask=inside)
    inside = (rows[:, None] < n) & (lanes < PADDED)
    tl.store(halves + at[:, None] * (2 * PADDED) + lanes, upper.to(tl.float16), mask=inside)
    tl.store(halves + at[:, None] * (2 * PADDED) + PADDED + lanes, lower.to(tl.float32).to(tl.float16), mask=inside)
    length = tl.load(lengths + group).to(tl.int32)
    weights = tl.load(counts + at, mask=rows < length, other=0).to(tl.int32)
    tl.store(left + at, weights, mask=rows < n)
    tl.store(members + at, rows, mask=rows < n)
    tl.store(picked + at, tl.zeros_like(rows), mask=rows < n)
    tl.store(owners + at, tl.zeros_like(at), mask=rows < n)
    tl.store(alive + group, length)
    tl.atomic_max(weight_most + group, tl.max(weights, 0), sem="relaxed")


@triton.jit
def halves_added(terms: tl.tensor, ROWS: tl.constexpr, WIDTH: tl.constexpr) -> tl.tensor:
    """Sums of terms [ROWS, WIDTH] over the last dimension in the order of `square_sums`: [ROWS, 1]."""
    if WIDTH > 1:
        pairs = tl.reshape(terms, (ROWS, 2, WIDTH // 2))
        return halves_added(tl.sum(pairs, 1), ROWS, WIDTH // 2)
    else:
        return terms


@triton.jit(do_not_specialize=["limit"])
def adjacency(
    halves: tl.tensor, steps: tl.tensor, lengths: tl.tensor, bits: tl.tensor, limit: tl.tensor, below: tl.tensor,
    above: tl.tensor, n: tl.tensor, words: tl.tensor, D: tl.constexpr, PADDED: tl.constexpr, TILE: tl.constexpr,
    EXACT: tl.constexpr, LANES: tl.constexpr,
) -> None:  # fmt: skip
    """Which nodes of two tiles are neighbours, as bits in the rows of both."""
    top = tl.program_id(0) * TILE
    first = tl.program_id(1) * TILE
    group = tl.program_id(2).to(tl.int64)
    length = tl.load(lengths + group).to(tl.int32)
    if (first >= top) & (first < length):
        rows = top + tl.arange(0, TILE)
        columns = first + tl.arange(0, TILE)
        halves += group * n * 2 * PADDED
        steps += group * n * D
        bits += group * n * words
        uppers = tl.zeros([TILE, TILE], tl.float32)
        mixed = tl.zeros([TILE, TILE], tl.float32)
        for lane in range(0, PADDED, LANES):
            lanes = lane + tl.arange(0, LANES)
            a = halves + rows[:, None].to(tl.int64) * (2 * PADDED) + lanes[None, :]
            b = halves + columns[None, :].to(tl.int64) * (2 * PADDED) + lanes[:, None]
            a_upper = tl.load(a, mask=rows[:, None] < length, other=0.0)
            a_lower = tl.load(a + PADDED, mask=rows[:, None] < length, other=0.0)
            b_upper = tl.load(b, mask=columns[None, :] < length, other=0.0)
            b_lower = tl.load(b + PADDED, mask=columns[None, :] < length, other=0.0)
            uppers = tl.dot(a_upper, b_upper, uppers)
            mixed = tl.dot(a_upper, b_lower, mixed)
            mixed = tl.dot(a_lower, b_upper, mixed)
        cosines = uppers + mixed * (1 / 16384)
        near = cosines > above
        set_bits(near, bits, top, first, length, words, TILE)
        certain = tl.abs(cosines - (below + above) * 0.5) > (above - below) * 0.5  # and is a number
        if tl.min(tl.min(certain.to(tl.int32), 1), 0) == 0:
            tl.debug_barrier()  # the bits written above are overwritten
            for part in range(0, (TILE // EXACT) * (TILE // EXACT)):
                part_top = top + part // (TILE // EXACT) * EXACT
                part_first = first + part % (TILE // EXACT) * EXACT
                in_rows = rows // EXACT * EXACT == part_top
                in_columns = columns // EXACT * EXACT == part_first
                inside = in_rows[:, None] & in_columns[None, :]
                if tl.min(tl.min((certain | (inside == 0)).to(tl.int32), 1), 0) == 0:
                    part_near = exact(steps, part_top, part_first, length, limit, D, EXACT, LANES)
                    set_bits(part_near, bits, part_top, part_first, length, words, EXACT)


@triton.jit
def exact(
    steps: tl.tensor, top: tl.tensor, first: tl.tensor, length: tl.tensor, limit: tl.tensor, D: tl.constexpr,
    TILE: tl.constexpr, LANES: tl.constexpr,
) -> tl.tensor:  # fmt: skip
    """Which nodes of two tiles are neighbours, by similarities in float64: [TILE, TILE]."""
    rows = top + tl.arange(0, TILE)
    columns = first + tl.arange(0, TILE)
    cosines = tl.zeros([TILE, TILE], tl.float64)
    row_squares = tl.zeros([TILE], tl.float64)
    column_squares = tl.zeros([TILE], tl.float64)
    for lane in range(0, D, LANES):
        lanes = lane + tl.arange(0, LANES)
        a = tl.load(
            steps + rows[:, None].to(tl.int64) * D + lanes[None, :],
            mask=(rows[:, None] < length) & (lanes[None, :] < D),
            other=0,
        ).to(tl.float64)
        b = tl.load(
            steps + columns[None, :].to(tl.int64) * D + lanes[:, None],
            mask=(columns[None, :] < length) & (lanes[:, None] < D),
            other=0,
        ).to(tl.float64)
        cosines = tl.dot(a, b, cosines, out_dtype=tl.float64)
        row_squares += tl.sum(a * a, 1)
        column_squares += tl.sum(b * b, 0)
    # equal directions have a squared distance of 0; a vector with NaN still covers itself, so that rounds end
    near = (cosines > limit.to(tl.float64)) | (row_squares[:, None] + column_squares[None, :] - 2.0 * cosines == 0.0)
    return near | (rows[:, None] == columns[None, :])


@triton.jit
def set_bits(
    near: tl.tensor, bits: tl.tensor, top: tl.tensor, first: tl.tensor, length: tl.tensor, words: tl.tensor,
    TILE: tl.constexpr,
) -> None:  # fmt: skip
    """Write near [TILE, TILE] of nodes from `top` and from `first` to the rows of both."""
    set_rows(near, bits, top, first, length, words, TILE)
    set_rows(tl.trans(near), bits, first, top, length, words, TILE)


@triton.jit
def set_rows(
    near: tl.tensor, bits: tl.tensor, top: tl.tensor, first: tl.tensor, length: tl.tensor, words: tl.tensor,
    TILE: tl.constexpr,
) -> None:  # fmt: skip
    rows = top + tl.arange(0, TILE)[:, None]
    word = first // 32 + tl.arange(0, TILE // 32)[None, :]
    values = tl.where(tl.reshape(near, (TILE, TILE // 32, 32)), (1 << tl.arange(0, 32))[None, None, :], 0)
    tl.store(bits + rows.to(tl.int64) * words + word, tl.sum(values, 2), mask=rows < length)
