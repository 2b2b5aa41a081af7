"""Triton: coding one token. Two launches per side: nearest entries, split over entries; then references and entries."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kvbench.methods.spindlekv.ops.codebook_layout import KEYS, VALUES, Books, Coded, Layout, Place, Rotation, Vectors
from kvbench.methods.spindlekv.ops.kernels.codebook_references import store_reference
from kvbench.ops.kernels.registers import most_registers

MOST_SPLITS = 64
LEAST_ENTRIES = 128  # per split
BLOCK_N = 32
WIDE = 512  # pairs of channels of a new token whose registers need more threads than 4 warps
FIELDS = len(Place._fields)
TINY = tl.constexpr(1e-12)  # as in the reference
NONE = tl.constexpr((1 << 31) - 1)  # an index above all others


@triton.jit
def load_vectors(
    vectors: tl.tensor, order: tl.tensor, turn: tl.tensor, head: tl.tensor, D: tl.constexpr, PAIRS: tl.constexpr,
    HALF: tl.constexpr,
) -> tuple[tl.tensor, tl.tensor, tl.tensor]:  # fmt: skip
    """First and second channels of pairs, float32 [heads, HALF] each, rotated back by turn; and the vectors' norms.

    PAIRS is 0 for vectors that are neither rotated nor put in paired order.
    """
    half = tl.arange(0, HALF)
    inside = (head >= 0)[:, None] & (half < D // 2)
    first, second = 2 * half, 2 * half + 1
    if PAIRS:
        first = tl.load(order + 2 * half, mask=half < D // 2, other=0)
        second = tl.load(order + 2 * half + 1, mask=half < D // 2, other=0)
    place = vectors + head[:, None] * D
    x = tl.load(place + first[None, :], mask=inside, other=0.0).to(tl.float32)
    y = tl.load(place + second[None, :], mask=inside, other=0.0).to(tl.float32)
    if PAIRS:
        cosine = tl.load(turn + 2 * half, mask=half < PAIRS, other=1.0)
        sine = tl.load(turn + 2 * half + 1, mask=half < PAIRS, other=0.0)
        x, y = x * cosine + y * sine, y * cosine - x * sine
    return x, y, tl.sqrt(tl.sum(x * x + y * y, 1))


@triton.jit
def cosines(x: tl.tensor, y: tl.tensor, ux: tl.tensor, uy: tl.tensor) -> tl.tensor:
    """Cosines [n] of rows x, y [n, HALF] to a unit vector ux, uy [1, HALF]."""
    norm = tl.sqrt(tl.sum(x * x + y * y, 1))
    return tl.sum(x * ux + y * uy, 1) / tl.maximum(norm, TINY)


@triton.jit(do_not_specialize=["split_entries", "prompt"])
def nearest_entry_kernel(
    entries: tl.tensor, sizes: tl.tensor, vectors: tl.tensor, order: tl.tensor, turns: tl.tensor, layout: tl.tensor,
    best: tl.tensor, where: tl.tensor, decoded: tl.tensor, prompt: tl.tensor, split_entries: tl.tensor,
    SIDE: tl.constexpr, FIELDS: tl.constexpr, COPIES: tl.constexpr, SHARED: tl.constexpr,
    D: tl.constexpr, PAIRS: tl.constexpr, HALF: tl.constexpr, BLOCK_N: tl.constexpr,
) -> None:  # fmt: skip
    """One program per stream and `split_entries` entries of its book: the largest cosine, and the lowest such entry.

    Writes best, where [streams, splits]; -inf without entries. COPIES streams share a head, SHARED streams a book.
    """
    stream, split = tl.program_id(0), tl.program_id(1)
    size = tl.load(sizes + stream // SHARED).to(tl.int32)
    book = tl.load(layout + stream * FIELDS + SIDE)
    half = tl.arange(0, HALF)
    turn = turns + (prompt + tl.load(decoded + stream)).to(tl.int64) * (2 * PAIRS)
    ux, uy, norm = load_vectors(vectors, order, turn, tl.full([1], 0, tl.int32) + stream // COPIES, D, PAIRS, HALF)
    ux /= tl.maximum(norm, TINY)[:, None]
    uy /= tl.maximum(norm, TINY)[:, None]
    largest = -float("inf")
    nearest = tl.full([], NONE, tl.int32)
    first = split * split_entries
    for block in range(first, tl.minimum(first + split_entries, size), BLOCK_N):
        row = block + tl.arange(0, BLOCK_N)
        inside = (row < size)[:, None] & (half < D // 2)
        place = entries + (book + row)[:, None] * D + 2 * half
        x = tl.load(place, mask=inside, other=0.0).to(tl.float32)
        y = tl.load(place + 1, mask=inside, other=0.0).to(tl.float32)
        cosine = tl.where(row < size, cosines(x, y, ux, uy), -float("inf"))
        top = tl.max(cosine, 0)
        lowest = tl.min(tl.where(cosine == top, row, NONE), 0)
        nearest = tl.where(top > largest, lowest, nearest)  # ties: the earlier block
        largest = tl.maximum(largest, top)
    at = stream * tl.num_programs(1) + split
    tl.store(best + at, largest)
    tl.store(where + at, nearest)


@triton.jit(do_not_specialize=["prompt", "splits"])
def settle_entry_kernel(
    entries: tl.tensor, references: tl.tensor, magnitudes: tl.tensor, sizes: tl.tensor, vectors: tl.tensor,
    order: tl.tensor, turns: tl.tensor, layout: tl.tensor, best: tl.tensor, where: tl.tensor, decoded: tl.tensor,
    prompt: tl.tensor, splits: tl.tensor, bound: tl.tensor, SIDE: tl.constexpr, FIELDS: tl.constexpr,
    COPIES: tl.constexpr, SHARED: tl.constexpr, ROWS: tl.constexpr, MAGNITUDES: tl.constexpr, COUNTS: tl.constexpr,
    D: tl.constexpr, PAIRS: tl.constexpr, HALF: tl.constexpr, SPLITS: tl.constexpr,
) -> None:  # fmt: skip
    """One program per book, for its SHARED streams in turn. A stream may add an entry that the next streams find.

    The launch for values is a token's last: it counts the token of its streams, which no other program reads.
    """
    number = tl.program_id(0)
    half, row, part = tl.arange(0, HALF), tl.arange(0, ROWS), tl.arange(0, SPLITS)
    used = tl.load(sizes + number).to(tl.int32)
    book = tl.load(layout + number * SHARED * FIELDS + SIDE)
    head = tl.where(row < SHARED, (number * SHARED + row) // COPIES, -1)
    earlier = tl.load(decoded + number * SHARED)
    turn = turns + (prompt + earlier).to(tl.int64) * (2 * PAIRS)
    x, y, norm = load_vectors(vectors, order, turn, head, D, PAIRS, HALF)
    ux = x / tl.maximum(norm, TINY)[:, None]
    uy = y / tl.maximum(norm, TINY)[:, None]
    if MAGNITUDES:
        x, y = ux, uy
    x = x.to(entries.dtype.element_ty).to(tl.float32)  # rounded as in storage
    y = y.to(entries.dtype.element_ty).to(tl.float32)
    fresh = tl.full([ROWS], NONE, tl.int32)  # the new entry of each stream, if any
    for turn_of in range(0, SHARED):
        stream = number * SHARED + turn_of
        value = tl.load(best + stream * splits + part, mask=part < splits, other=-float("inf"))
        at = tl.load(where + stream * splits + part, mask=part < splits, other=NONE)
        largest = tl.max(value, 0)
        reference = tl.min(tl.where(value == largest, at, NONE), 0)
        mine = row == turn_of
        if SHARED > 1:
            own_x = tl.sum(tl.where(mine[:, None], ux, 0.0), 0)[None, :]
            own_y = tl.sum(tl.where(mine[:, None], uy, 0.0), 0)[None, :]
            among = tl.where(fresh < NONE, cosines(x, y, own_x, own_y), -float("inf"))
            top = tl.max(among, 0)
            reference = tl.where(top > largest, tl.min(tl.where(among == top, fresh, NONE), 0), reference)
            largest = tl.maximum(largest, top)
        adds = largest <= bound
        reference = tl.where(adds, used, reference)
        fresh = tl.where(mine, tl.where(adds, used, NONE), fresh)
        used = tl.where(adds, used + 1, used)
        place = layout + stream * FIELDS
        token = tl.load(place) + earlier
        if COUNTS:
            tl.store(decoded + stream, earlier + 1)
        store_reference(references + tl.load(place + SIDE + 1), token, tl.load(place + SIDE + 2), reference)
        if MAGNITUDES:
            length = tl.sum(tl.where(mine, norm, 0.0), 0)
            tl.store(magnitudes + tl.load(place + 1) + token, length.to(magnitudes.dtype.element_ty))
    to = entries + (book + fresh)[:, None] * D + 2 * half
    added = (fresh < NONE)[:, None] & (half < D // 2)
    tl.store(to, x.to(entries.dtype.element_ty), mask=added)
    tl.store(to + 1, y.to(entries.dtype.element_ty), mask=added)
    tl.store(sizes + number, used.to(tl.int64))


def codebook_append(
    keys: Coded,
    values: Coded,
    key_books: Books,
    value_books: Books,
    new: Vectors,
    rotation: Rotation,
    layout: Layout,
) -> None:
    """See `kvbench.methods.spindlekv.ops.codebook_append`."""
    append_side(keys, key_books, new.keys, rotation, layout, KEYS)
    append_side(values, value_books, new.values, None, layout, VALUES)


def append_side(
    stored: Coded, books: Books, vectors: Tensor, rotation: Rotation | None, layout: Layout, side: int
) -> None:
    vectors, (entries, references, magnitudes) = vectors.contiguous(), stored
    streams, count, head_dim = len(layout.places), len(books.sizes), entries.shape[1]
    splits = max(1, min(triton.cdiv(books.most, LEAST_ENTRIES), MOST_SPLITS))
    best = torch.empty(streams, splits, dtype=torch.float32, device=entries.device)
    where = torch.empty(streams, splits, dtype=torch.int32, device=entries.device)
    shared = {
        "SIDE": side, "FIELDS": FIELDS, "COPIES": streams // len(vectors), "SHARED": streams // count, "D": head_dim,
        "PAIRS": 0 if rotation is None else rotation.turns.shape[1],
        "HALF": max(16, triton.next_power_of_2(head_dim // 2)),
    }  # fmt: skip
    order, turns = (layout.places, vectors) if rotation is None else rotation
    nearest_entry_kernel[(streams, splits)](
        entries, books.sizes, vectors, order, turns, layout.places, best, where, layout.decoded, layout.prompt,
        triton.cdiv(books.most, splits), BLOCK_N=BLOCK_N, **shared,
    )  # fmt: skip
    rows = triton.next_power_of_2(streams // count)
    settle_entry_kernel[(count,)](
        entries, references, entries if magnitudes is None else magnitudes, books.sizes, vectors, order, turns,
        layout.places, best, where, layout.decoded, layout.prompt, splits, books.bound,
        ROWS=rows, MAGNITUDES=magnitudes is not None, COUNTS=side == VALUES, SPLITS=MOST_SPLITS, **shared,
        num_warps=8 if rows * shared["HALF"] >= WIDE else 4, **most_registers(128),
    )  # fmt: skip
