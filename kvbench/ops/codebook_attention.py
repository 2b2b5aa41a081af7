"""Attention over a codebook cache: entries, references and magnitudes as they are stored, nothing rebuilt and kept."""

from bisect import bisect_right

import torch
from torch import Tensor

from kvbench.ops import softmax
from kvbench.ops.bits import unpack_bits
from kvbench.ops.codebook_layout import Place, to_places, view_references
from kvbench.ops.operator import operator
from kvbench.ops.softmax import Scaling


@operator(
    "codebook_attention(Tensor query, Tensor key_entries, Tensor key_references, Tensor? key_magnitudes, "
    "Tensor value_entries, Tensor value_references, Tensor? value_magnitudes, Tensor? positions, Tensor? bits, "
    "Tensor raw_keys, Tensor raw_values, Tensor order, Tensor turns, Tensor layout, SymInt longest, SymInt prompt, "
    "Tensor decoded, float scaling) -> Tensor",
    launches=2,
)
def codebook_attention(
    query: Tensor,
    key_entries: Tensor,
    key_references: Tensor,
    key_magnitudes: Tensor | None,
    value_entries: Tensor,
    value_references: Tensor,
    value_magnitudes: Tensor | None,
    positions: Tensor | None,
    bits: Tensor | None,
    raw_keys: Tensor,
    raw_values: Tensor,
    order: Tensor,
    turns: Tensor,
    layout: Tensor,
    longest: int,
    prompt: int,
    decoded: Tensor,
    scaling: Scaling,
) -> Tensor:
    """softmax(QKᵀ·scaling)V of one token's query [streams, query heads of each, head_dim], which it returns like query.

    Each stream has coded tokens, those of the prompt and decoded ones, and the raw ones of its KV head; `layout`
    [streams, fields] says where (see `codebook_layout`), decoded int32 [streams], all equal, how many were decoded. A
    coded key is its entry times its magnitude, rotated to its position: of the prompt's tokens that in `positions`, of
    decoded ones from `prompt` on. A coded value is its entry times its magnitude. entries [rows, head_dim], references
    uint8 [bytes], magnitudes [tokens] or None, raw vectors [rows, head_dim], bits uint8, turns float32 [positions,
    pairs, 2]. Key entries and raw keys are in paired order, which `order` int64 [head_dim] brings a query's channels
    into (see `rope_table`). `longest`: no stream has more tokens, coded or raw.
    """
    later = int(decoded[0])
    out, places, turning = torch.empty_like(query), to_places(layout), torch.view_as_complex(turns)
    books = [*sorted({place.value_book for place in places}), len(value_entries)]
    for stream, place in enumerate(places):
        q, count = query[stream].float().index_select(1, order), place.tokens + later
        keys = key_entries[place.key_book :].index_select(
            0, view_references(key_references, place.key_references, place.key_width, count).int()
        )
        rotated = rotate_coded(keys.float(), place, positions, turning, prompt)
        logits = q @ rotated.T  # [query heads, coded]
        span = slice(place.start, place.start + count)
        if key_magnitudes is not None:
            logits *= key_magnitudes[span]
        if place.bits >= 0:
            assert bits is not None, "a place has bits"
            seen = bits[place.bits : place.bits + len(q) * -(-place.tokens // 8)].view(len(q), -1)
            logits[:, : place.tokens].masked_fill_(~unpack_bits(seen, place.tokens), float("-inf"))
        raw = slice(place.raw, place.raw + place.window)
        if place.window:
            logits = torch.cat([logits, q @ raw_keys[raw].float().T], dim=1)
        own = softmax.of_heads(scaling, slice(stream * len(q), (stream + 1) * len(q)))
        weights = softmax.weights(softmax.capped_(logits * softmax.plain(scaling), scaling), own)
        coded = weights[:, :count]
        if value_magnitudes is not None:
            coded = coded * value_magnitudes[span]
        # a book's entries are fewer than its references: add up the weight of each entry first
        references = view_references(value_references, place.value_references, place.value_width, count).long()
        rows = (
            value_entries[place.value_book : books[bisect_right(books, place.value_book)]]
            if count
            else value_entries[:0]
        )
        by_entry = coded.new_zeros(len(q), len(rows)).scatter_add_(1, references.expand(len(q), -1), coded)
        answer = by_entry @ rows.float()
        if place.window:
            answer += weights[:, count:] @ raw_values[raw].float()
        out[stream] = answer
    return out


def rotate_coded(keys: Tensor, place: Place, positions: Tensor | None, turns: Tensor, prompt: int) -> Tensor:
    """Rotate coded keys float32 [tokens + decoded, head_dim] of one stream to their positions, in place.

    turns complex64 [positions, pairs].
    """
    pairs = turns.shape[1]
    turned = torch.view_as_complex(keys.unflatten(1, (-1, 2)))
    if 2 * pairs < keys.shape[1]:
        turned = turned[:, :pairs]
    if place.positions < 0:
        if place.tokens == prompt:  # decoded tokens follow at once
            turned *= turns[: len(keys)]
            return keys
        stored = turns[: place.tokens]
    else:
        assert positions is not None, "a place has positions"
        stored = turns.index_select(0, positions[place.positions : place.positions + place.tokens].int())
    turned[: place.tokens].mul_(stored)
    if len(keys) > place.tokens:
        turned[place.tokens :].mul_(turns[prompt : prompt + len(keys) - place.tokens])
    return keys
