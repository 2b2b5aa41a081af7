"""Coding decoded vectors on a CPU."""

import numpy as np
import torch
from numba import prange
from torch import Tensor

from kvbench.ops.codebook_append import TINY, are_units, decoded_vectors
from kvbench.ops.codebook_layout import START, TOKENS
from kvbench.ops.compiled.loops import loop, shared


def codebook_append(
    entries: Tensor,
    references: Tensor,
    magnitudes: Tensor | None,
    sizes: Tensor,
    vectors: Tensor,
    turn: Tensor | None,
    layout: Tensor,
    side: int,
    decoded: int,
    most: int,
    bound: float,
) -> None:
    """See `kvbench.ops.codebook_append`."""
    single = entries.dtype == torch.float32
    if single:
        units, norms, fresh = decoded_singles(vectors, turn, magnitudes is not None)
    else:
        of_torch = decoded_vectors(vectors, turn, entries.dtype, magnitudes is not None)
        units, norms, fresh = (x.float().numpy() for x in of_torch)
    places = layout.numpy()
    added = np.empty(len(places), np.int64)
    code(
        entries.float().numpy(),  # of float32 the entries themselves
        references.numpy(),
        sizes.numpy(),
        units,
        fresh,
        are_units(entries, magnitudes),
        places,
        side,
        decoded,
        bound,
        added,
    )
    if not single:
        streams = np.flatnonzero(added >= 0)
        heads = streams * len(fresh) // len(added)
        entries.index_copy_(0, torch.from_numpy(added[streams]), torch.from_numpy(fresh[heads]).to(entries.dtype))
    if magnitudes is not None:
        at = places[:, START] + places[:, TOKENS] + decoded
        of_streams = norms.repeat(len(places) // len(norms))
        if single:
            magnitudes.numpy()[at] = of_streams
        else:
            magnitudes.index_copy_(0, torch.from_numpy(at), torch.from_numpy(of_streams).to(magnitudes.dtype))


def decoded_singles(
    vectors: Tensor, turn: Tensor | None, reconstructs: bool
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """`decoded_vectors` of float32."""
    x = vectors.numpy()
    units, fresh, norms = np.empty_like(x), np.empty_like(x), np.empty(len(x), np.float32)
    directions(x, NO_TURN if turn is None else turn.numpy(), reconstructs, units, norms, fresh)
    return units, norms, fresh


NO_TURN = np.empty((0, 2), np.float32)


@loop
def directions(vectors, turn, reconstructs, units, norms, fresh):
    """Write what `decoded_vectors` returns of vectors [heads, head_dim], with turn [pairs, 2] undone."""
    heads, width = vectors.shape
    pairs = len(turn)
    for head in range(heads):
        own, unit = fresh[head], units[head]
        for pair in range(pairs):
            cosine, sine = turn[pair, 0], turn[pair, 1]
            real, imaginary = vectors[head, 2 * pair], vectors[head, 2 * pair + 1]
            own[2 * pair] = real * cosine + imaginary * sine
            own[2 * pair + 1] = imaginary * cosine - real * sine
        for c in range(2 * pairs, width):
            own[c] = vectors[head, c]
        square = np.float32(0)
        for c in range(width):
            square += own[c] * own[c]
        norms[head] = np.sqrt(square)
        for c in range(width):
            unit[c] = own[c] / max(norms[head], np.float32(TINY))
        if reconstructs:
            for c in range(width):
                own[c] = unit[c]


@shared
def code(rows, references, sizes, units, fresh, are_units, places, side, decoded, bound, added):
    """For each stream, write the reference to the nearest entry, or to a new one, which is also written to rows.

    added [streams]: the row of the new entry, or -1.
    """
    streams, heads, books = len(places), len(units), len(sizes)
    for book in prange(books):
        for stream in range(book * streams // books, (book + 1) * streams // books):
            unit, vector = units[stream * heads // streams], fresh[stream * heads // streams]
            first, offset, size = places[stream, side], places[stream, side + 1], places[stream, side + 2]
            number, largest = nearest(rows[first : first + sizes[book]], unit, are_units)
            added[stream] = -1
            if not largest > bound:
                number = sizes[book]
                sizes[book] += 1
                added[stream] = first + number
                rows[first + number] = vector
            place = offset + size * (places[stream, TOKENS] + decoded)
            for byte in range(size):
                references[place + byte] = np.uint8((number >> (8 * byte)) & 255)


@loop
def nearest(rows, unit, are_units):
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
