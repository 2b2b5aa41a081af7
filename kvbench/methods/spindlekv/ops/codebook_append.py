"""Coding decoded vectors: each becomes a reference to the codebook's nearest entry, or a new entry."""

from typing import NamedTuple

import torch
from torch import Tensor

from kvbench.methods.spindlekv.ops.codebook_layout import (
    KEYS,
    VALUES,
    Books,
    Coded,
    Layout,
    Place,
    Rotation,
    Vectors,
    to_places,
    view_references,
)
from kvbench.methods.spindlekv.ops.rope_table import unturn
from kvbench.ops.operator import operator

# Below this norm a vector counts as zero: cosine 0 with everything.
TINY = 1e-12


@operator(launches=4, mutates=("keys", "values", "key_books", "value_books", "layout.decoded"))
def codebook_append(
    keys: Coded,
    values: Coded,
    key_books: Books,
    value_books: Books,
    new: Vectors,
    rotation: Rotation,
    layout: Layout,
) -> None:
    """Code the keys and values of a new token, [num_key_value_heads, head_dim], once per stream; count it as decoded.

    A stream refers to the entry of its book with the largest cosine if this is above the bound (ties: the lowest
    entry). Otherwise the vector becomes the book's next entry. Streams that share a book are coded one after the other.

    New keys are passed after RoPE; it is undone first, because entries are keys before RoPE.
    """
    earlier, places = int(layout.decoded[0]), to_places(layout.places)
    paired, turn = new.keys.index_select(1, rotation.order), rotation.turns[layout.prompt + earlier]
    append_side(keys, key_books, paired, turn, places, KEYS, earlier)
    append_side(values, value_books, new.values, None, places, VALUES, earlier)
    layout.decoded.add_(1)


def append_side(
    stored: Coded, books: Books, vectors: Tensor, turn: Tensor | None, places: list[Place], side: int, decoded: int
) -> None:
    """`codebook_append` of keys or of values: side is KEYS or VALUES."""
    entries, references, magnitudes = stored
    sizes = books.sizes
    units, norms, fresh = decoded_vectors(vectors, turn, entries.dtype, magnitudes is not None)
    unit = are_units(entries, magnitudes)
    used, at = sizes.tolist(), []
    for stream, place in enumerate(places):
        head, book = stream * len(vectors) // len(places), stream * len(used) // len(places)
        first, offset, width = place[side : side + 3]
        reference = nearest(entries[first : first + used[book]], units[head], unit, books.bound)
        if reference is None:
            reference = used[book]
            entries[first + reference] = fresh[head]
            used[book] += 1
        token = place.tokens + decoded
        view_references(references, offset + width * token, width, 1).fill_(reference)
        at.append(place.start + token)
    if magnitudes is not None:
        magnitudes[at] = norms.repeat_interleave(len(places) // len(vectors))
    sizes.copy_(torch.tensor(used))


class Decoded(NamedTuple):
    units: Tensor  # float32 [heads, head_dim], the vectors' directions
    norms: Tensor  # [heads]
    fresh: Tensor  # [heads, head_dim], the vectors as new entries


def decoded_vectors(vectors: Tensor, turn: Tensor | None, dtype: torch.dtype, reconstructs: bool) -> Decoded:
    """Directions, norms and entries of vectors [heads, head_dim], rotated back by `turn`; norms, entries in `dtype`."""
    x = vectors.float()
    if turn is not None:
        x = unturn(x.clone(), turn[None])
    norms = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    units = x / norms.clamp_min(TINY)
    return Decoded(units, norms.to(dtype)[:, 0], (units if reconstructs else x).to(dtype))


def are_units(entries: Tensor, magnitudes: Tensor | None) -> bool:
    """Whether entries are unit vectors up to float32's rounding error, which is in their products anyway."""
    return magnitudes is not None and entries.dtype == torch.float32


def nearest(entries: Tensor, unit: Tensor, are_units: bool, bound: float) -> int | None:
    """The row of entries [|C|, head_dim] with the largest cosine to a unit vector; None if it is not above `bound`."""
    if len(entries) == 0:
        return None
    rows = entries.float()
    cosines = torch.mv(rows, unit)
    if not are_units:
        cosines /= torch.linalg.vector_norm(rows, dim=-1).clamp_min(TINY)
    largest, best = cosines.max(dim=0)
    return best.item() if largest.item() > bound else None
