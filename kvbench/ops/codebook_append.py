"""Coding decoded vectors: each as the codebook's nearest entry, or as a new entry."""

from typing import NamedTuple

import torch
from torch import Tensor

from kvbench.ops.codebook_layout import KEYS, VALUES, Place, to_places, view_references
from kvbench.ops.operator import operator
from kvbench.ops.rope_table import unturn

# Below this norm a vector counts as zero: cosine 0 with everything.
TINY = 1e-12


@operator(
    "codebook_append(Tensor(a!) key_entries, Tensor(b!) key_references, Tensor(c!)? key_magnitudes, "
    "Tensor(d!) key_sizes, Tensor(e!) value_entries, Tensor(f!) value_references, Tensor(g!)? value_magnitudes, "
    "Tensor(h!) value_sizes, Tensor keys, Tensor values, Tensor order, Tensor turns, Tensor layout, SymInt prompt, "
    "Tensor(i!) decoded, SymInt most_keys, SymInt most_values, float key_bound, float value_bound) -> ()",
    launches=4,
)
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
    """Code one new token's keys and values [num_key_value_heads, head_dim], once per stream.

    A stream refers to the entry of its book with the largest cosine, if that is above the bound (ties: the lowest);
    else the vector becomes the book's next entry. Streams that share a book come one after the other.

    entries [rows, head_dim], references uint8 [bytes], magnitudes [tokens] or None and layout [streams, fields] as in
    `codebook_layout`. sizes int64 [books]: entries of each book, which has room for one more per stream and holds at
    most `most_keys`, `most_values`. decoded int32 [streams], all equal: how many tokens came after the `prompt` ones,
    which becomes one more. Keys come after RoPE: turns float32 [positions, pairs, 2] is undone first, in the paired
    order of channels `order` int64 [head_dim] (see `rope_table`), which is that of key entries.
    """
    earlier = int(decoded[0])
    places, paired, turn = to_places(layout), keys.index_select(1, order), turns[prompt + earlier]
    append_side(key_entries, key_references, key_magnitudes, key_sizes, paired, turn, places, KEYS, earlier, key_bound)
    append_side(
        value_entries, value_references, value_magnitudes, value_sizes, values, None, places, VALUES, earlier,
        value_bound,
    )  # fmt: skip
    decoded += 1


def append_side(
    entries: Tensor,
    references: Tensor,
    magnitudes: Tensor | None,
    sizes: Tensor,
    vectors: Tensor,
    turn: Tensor | None,
    places: list[Place],
    side: int,
    decoded: int,
    bound: float,
) -> None:
    """`codebook_append` of keys or of values: side is KEYS or VALUES."""
    units, norms, fresh = decoded_vectors(vectors, turn, entries.dtype, magnitudes is not None)
    unit = are_units(entries, magnitudes)
    used, at = sizes.tolist(), []
    for stream, place in enumerate(places):
        head, book = stream * len(vectors) // len(places), stream * len(used) // len(places)
        first, offset, width = place[side : side + 3]
        reference = nearest(entries[first : first + used[book]], units[head], unit, bound)
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
    fresh: Tensor  # [heads, head_dim], what each would be as an entry


def decoded_vectors(vectors: Tensor, turn: Tensor | None, dtype: torch.dtype, reconstructs: bool) -> Decoded:
    """Of vectors [heads, head_dim], after `turn` is undone; norms and entries in `dtype`."""
    x = vectors.float()
    if turn is not None:
        x = unturn(x.clone(), turn[None])
    norms = torch.linalg.vector_norm(x, dim=-1, keepdim=True)
    units = x / norms.clamp_min(TINY)
    return Decoded(units, norms.to(dtype)[:, 0], (units if reconstructs else x).to(dtype))


def are_units(entries: Tensor, magnitudes: Tensor | None) -> bool:
    """Whether entries are unit vectors up to float32's rounding, which their products have too."""
    return magnitudes is not None and entries.dtype == torch.float32


def nearest(entries: Tensor, unit: Tensor, are_units: bool, bound: float) -> int | None:
    """The row of entries [|C|, head_dim] with the largest cosine to a unit vector, if above `bound`."""
    if len(entries) == 0:
        return None
    rows = entries.float()
    cosines = torch.mv(rows, unit)
    if not are_units:
        cosines /= torch.linalg.vector_norm(rows, dim=-1).clamp_min(TINY)
    largest, best = cosines.max(dim=0)
    return best.item() if largest.item() > bound else None
