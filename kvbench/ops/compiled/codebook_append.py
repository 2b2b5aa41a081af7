"""Coding decoded vectors on a CPU."""

import numpy as np
import torch
from torch import Tensor

from kvbench.ops.codebook_append import TINY, are_units, decoded_vectors
from kvbench.ops.codebook_layout import START, TOKENS
from kvbench.ops.compiled.loops import loop


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
    units, norms, fresh = decoded_vectors(vectors, turn, entries.dtype, magnitudes is not None)
    rows = entries.float()  # of float32 the entries themselves
    added = np.empty(len(layout), np.int64)
    code(
        rows.numpy(),
        references.numpy(),
        sizes.numpy(),
        units.numpy(),
        fresh.float().numpy(),
        are_units(entries, magnitudes),
        layout.numpy(),
        side,
        decoded,
        bound,
        added,
    )
    if entries.dtype != torch.float32:
        streams = np.flatnonzero(added >= 0)
        heads = streams * len(fresh) // len(added)
        entries.index_copy_(0, torch.from_numpy(added[streams]), fresh[torch.from_numpy(heads)])
    if magnitudes is not None:
        at = layout[:, START] + layout[:, TOKENS] + decoded
        magnitudes.index_copy_(0, at, norms.repeat_interleave(len(layout) // len(norms)))


@loop
def code(rows, references, sizes, units, fresh, are_units, places, side, decoded, bound, added):
    """For each stream, write the reference to the nearest entry, or to a new one, which is also written to rows.

    added [streams]: the row of the new entry, or -1.
    """
    streams, heads, books, width = len(places), len(units), len(sizes), rows.shape[1]
    for stream in range(streams):
        head, book = stream * heads // streams, stream * books // streams
        first, offset, size = places[stream, side], places[stream, side + 1], places[stream, side + 2]
        number, largest = np.int64(-1), np.float32(-np.inf)
        for entry in range(sizes[book]):
            product, square = np.float32(0), np.float32(0)
            for c in range(width):
                product += rows[first + entry, c] * units[head, c]
            if not are_units:
                for c in range(width):
                    square += rows[first + entry, c] * rows[first + entry, c]
                product /= max(np.sqrt(square), np.float32(TINY))
            if product > largest:
                number, largest = np.int64(entry), product
        added[stream] = -1
        if not largest > bound:
            number = sizes[book]
            sizes[book] += 1
            added[stream] = first + number
            for c in range(width):
                rows[first + number, c] = fresh[head, c]
        place = offset + size * (places[stream, TOKENS] + decoded)
        for byte in range(size):
            references[place + byte] = np.uint8((number >> (8 * byte)) & 255)
