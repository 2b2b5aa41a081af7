"""Coding decoded vectors on a CPU."""

from typing import NamedTuple

import numpy as np
import torch
from numba import prange
from torch import Tensor

from kvbench.ops.codebook_append import TINY, are_units
from kvbench.ops.codebook_layout import KEYS, START, TOKENS, VALUES
from kvbench.ops.compiled.loops import loop, shared

PARTS = 16  # equal shares of all entries of a side, in each of which nearest ones are looked for by itself
NOTHING = np.empty(0, np.float32)
NO_ORDER, NO_TURN = np.empty(0, np.int64), np.empty((0, 2), np.float32)


def codebook_append(
    key_entries: Tensor,
    key_references: Tensor,
    key_magnitudes: Tensor | None,
    key_sizes: Tensor,
    value_entries: Tensor,
    value_references: Tensor,
    value_magnitudes: Tensor | None,
    value_sizes: Tensor,
    keys: Tensor,
    values: Tensor,
    order: Tensor,
    turns: Tensor,
    layout: Tensor,
    prompt: int,
    decoded: Tensor,
    most_keys: int,
    most_values: int,
    key_bound: float,
    value_bound: float,
) -> None:
    """See `kvbench.ops.codebook_append`."""
    reconstructs, earlier = key_magnitudes is not None, int(decoded[0])
    norms, fresh = np.empty((2, len(keys)), np.float32), np.empty((2, *keys.shape), np.float32)
    added = np.empty((2, len(layout)), np.int64)
    code(
        *_arrays(key_entries, key_references, key_magnitudes, key_sizes, keys),
        *_arrays(value_entries, value_references, value_magnitudes, value_sizes, values),
        order.numpy(),
        turns.numpy(),
        layout.numpy(),
        reconstructs,
        are_units(key_entries, key_magnitudes),
        prompt,
        earlier,
        key_bound,
        value_bound,
        norms,
        fresh,
        added,
    )
    if key_entries.dtype != torch.float32:
        _write(key_entries, key_magnitudes, layout, earlier, norms[0], fresh[0], added[0])
        _write(value_entries, value_magnitudes, layout, earlier, norms[1], fresh[1], added[1])
    decoded += 1


class Side(NamedTuple):
    """Of keys or of values."""

    entries: np.ndarray
    references: np.ndarray
    magnitudes: np.ndarray
    sizes: np.ndarray
    vectors: np.ndarray


def _arrays(entries: Tensor, references: Tensor, magnitudes: Tensor | None, sizes: Tensor, vectors: Tensor) -> Side:
    """Of float32 the tensors themselves, into which loops write; magnitudes are empty where they do not."""
    own = NOTHING if magnitudes is None or magnitudes.dtype != torch.float32 else magnitudes.numpy()
    return Side(entries.float().numpy(), references.numpy(), own, sizes.numpy(), vectors.float().numpy())


def _write(
    entries: Tensor,
    magnitudes: Tensor | None,
    layout: Tensor,
    decoded: int,
    norms: np.ndarray,
    fresh: np.ndarray,
    added: np.ndarray,
) -> None:
    """What `code` has found, to a side of 16 bits."""
    streams = np.flatnonzero(added >= 0)
    heads = streams * len(fresh) // len(added)
    entries.index_copy_(0, torch.from_numpy(added[streams]), torch.from_numpy(fresh[heads]).to(entries.dtype))
    if magnitudes is not None:
        at = layout[:, START] + layout[:, TOKENS] + decoded
        of_streams = torch.from_numpy(norms.repeat(len(layout) // len(norms)))
        magnitudes.index_copy_(0, at, of_streams.to(magnitudes.dtype))


@shared
def code(
    key_entries: np.ndarray, key_references: np.ndarray, key_magnitudes: np.ndarray, key_sizes: np.ndarray,
    keys: np.ndarray, value_entries: np.ndarray, value_references: np.ndarray, value_magnitudes: np.ndarray,
    value_sizes: np.ndarray, values: np.ndarray, order: np.ndarray, turns: np.ndarray, places: np.ndarray,
    reconstructs: bool, are_units: bool, prompt: int, decoded: int, key_bound: float, value_bound: float,
    norms: np.ndarray, fresh: np.ndarray, added: np.ndarray,
) -> None:  # fmt: skip
    """Code keys and values [heads, head_dim]: see `directions`, of which norms [2, heads] and fresh [2, heads,
    head_dim] are written, and `settle`, which writes added [2, streams]."""
    units = np.empty(fresh.shape, np.float32)
    directions(keys, order, turns[prompt + decoded], reconstructs, units[0], norms[0], fresh[0])
    directions(values, NO_ORDER, NO_TURN, reconstructs, units[1], norms[1], fresh[1])
    number, largest = np.empty((2, PARTS, len(places)), np.int64), np.empty((2, PARTS, len(places)), np.float32)
    for task in prange(2 * PARTS):
        part = task % PARTS
        if task < PARTS:
            look(key_entries, key_sizes, units[0], are_units, places, KEYS, part, number[0, part], largest[0, part])
        else:
            look(
                value_entries, value_sizes, units[1], are_units, places, VALUES, part, number[1, part], largest[1, part]
            )
    settle(
        key_entries, key_references, key_magnitudes, key_sizes, units[0], norms[0], fresh[0], are_units, places, KEYS,
        decoded, key_bound, number[0], largest[0], added[0],
    )  # fmt: skip
    settle(
        value_entries, value_references, value_magnitudes, value_sizes, units[1], norms[1], fresh[1], are_units, places,
        VALUES, decoded, value_bound, number[1], largest[1], added[1],
    )  # fmt: skip


@loop
def look(
    rows: np.ndarray, sizes: np.ndarray, units: np.ndarray, are_units: bool, places: np.ndarray, side: int, part: int,
    number: np.ndarray, largest: np.ndarray,
) -> None:  # fmt: skip
    """For each stream, the nearest of its entries that are in this part of all: number and largest [streams]."""
    streams, heads, books = len(places), len(units), len(sizes)
    total = 0
    for stream in range(streams):
        total += sizes[stream * books // streams]
    low, high, start = part * total // PARTS, (part + 1) * total // PARTS, 0
    for stream in range(streams):
        first, size = places[stream, side], sizes[stream * books // streams]
        begin = min(max(low - start, 0), size)
        end = min(max(high - start, begin), size)
        found, largest[stream] = nearest(rows[first + begin : first + end], units[stream * heads // streams], are_units)
        number[stream] = begin + found
        start += size


@loop
def settle(
    rows: np.ndarray, references: np.ndarray, magnitudes: np.ndarray, sizes: np.ndarray, units: np.ndarray,
    norms: np.ndarray, fresh: np.ndarray, are_units: bool, places: np.ndarray, side: int, decoded: int, bound: float,
    number: np.ndarray, largest: np.ndarray, added: np.ndarray,
) -> None:  # fmt: skip
    """For each stream, write the reference to the nearest entry, or to a new one, which is also written to rows.

    The nearest one is of those that the parts have found, number and largest [PARTS, streams], or new itself. added
    [streams]: the row of the new entry, or -1. Unless magnitudes are empty, norms are written to them.
    """
    streams, heads, books = len(places), len(units), len(sizes)
    before = sizes.copy()
    for stream in range(streams):
        book, head = stream * books // streams, stream * heads // streams
        first, offset, size = places[stream, side], places[stream, side + 1], places[stream, side + 2]
        found, cosine = nearest(rows[first + before[book] : first + sizes[book]], units[head], are_units)
        found += before[book]
        for part in range(PARTS - 1, -1, -1):
            if largest[part, stream] >= cosine:  # of equal ones the first
                found, cosine = number[part, stream], largest[part, stream]
        added[stream] = -1
        if not cosine > bound:
            found = sizes[book]
            sizes[book] += 1
            added[stream] = first + found
            rows[first + found] = fresh[head]
        token = places[stream, TOKENS] + decoded
        for byte in range(size):
            references[offset + size * token + byte] = np.uint8((found >> (8 * byte)) & 255)
        if len(magnitudes):
            magnitudes[places[stream, START] + token] = norms[head]


@loop
def directions(
    vectors: np.ndarray, order: np.ndarray, turn: np.ndarray, reconstructs: bool, units: np.ndarray, norms: np.ndarray,
    fresh: np.ndarray,
) -> None:  # fmt: skip
    """Of vectors [heads, head_dim], in `order` if that is not empty and with turn [pairs, 2] undone: unit vectors,
    norms, and what each is as an entry."""
    heads, width = vectors.shape
    for head in range(heads):
        own, unit = fresh[head], units[head]
        for c in range(width):
            own[c] = vectors[head, order[c] if len(order) else c]
        for pair in range(len(turn)):
            cosine, sine = turn[pair, 0], turn[pair, 1]
            real, imaginary = own[2 * pair], own[2 * pair + 1]
            own[2 * pair] = real * cosine + imaginary * sine
            own[2 * pair + 1] = imaginary * cosine - real * sine
        square = np.float32(0)
        for c in range(width):
            square += own[c] * own[c]
        norms[head] = np.sqrt(square)
        for c in range(width):
            unit[c] = own[c] / max(norms[head], np.float32(TINY))
        if reconstructs:
            for c in range(width):
                own[c] = unit[c]


@loop
def nearest(rows: np.ndarray, unit: np.ndarray, are_units: bool) -> tuple[np.int64, np.float32]:
    """The row with the largest cosine with `unit`, the first of equal ones, and that cosine; -1 and -inf of no rows."""
    number, largest = np.int64(-1), np.float32(-np.inf)
    for row in range(len(rows)):
        product, square = np.float32(0), np.float32(0)
        for c in range(len(unit)):
            product += rows[row, c] * unit[c]
        if not are_units:
            for c in range(len(unit)):
                square += rows[row, c] * rows[row, c]
            product /= max(np.sqrt(square), np.float32(TINY))
        if product > largest:
            number, largest = np.int64(row), product
    return number, largest
