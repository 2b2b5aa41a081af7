"""Attention over a codebook cache, directly from stored entries, references and magnitudes."""

from bisect import bisect_right

import torch
from torch import Tensor

from kvbench.methods.spindlekv.ops.codebook_layout import (
    Coded,
    Layout,
    Place,
    Rotation,
    Seen,
    Vectors,
    to_places,
    view_references,
)
from kvbench.ops import softmax
from kvbench.ops.bits import unpack_bits
from kvbench.ops.operator import like_first, operator
from kvbench.ops.signature import Varying
from kvbench.ops.softmax import Scaling


@operator(launches=2, fake=like_first)
def codebook_attention(
    query: Tensor,
    keys: Coded,
    values: Coded,
    seen: Seen,
    raw: Vectors,
    rotation: Rotation,
    layout: Layout,
    longest: Varying,
    scaling: Scaling,
) -> Tensor:
    """softmax(QKᵀ·scaling)V of one token's query [streams, query heads of each, head_dim]; the result has its shape.

    Each stream has coded tokens of the prompt, decoded tokens, and the raw tokens of its KV head. A coded key is its
    entry times its magnitude, rotated to its position: a prompt token's position in `seen`, a decoded token's position
    after the prompt. A coded value is its entry times its magnitude. Raw keys are after RoPE, in paired order.
    longest: upper bound of a stream's tokens, coded or raw.
    """
    later, prompt = int(layout.decoded[0]), layout.prompt
    out, places, turning = torch.empty_like(query), to_places(layout.places), torch.view_as_complex(rotation.turns)
    books = [*sorted({place.value_book for place in places}), len(values.entries)]
    for stream, place in enumerate(places):
        q, count = query[stream].float().index_select(1, rotation.order), place.tokens + later
        references = view_references(keys.references, place.key_references, place.key_width, count)
        rows = keys.entries[place.key_book :].index_select(0, references.int()).float()
        rotated = rotate_coded(rows, place, seen.positions, turning, prompt)
        logits = q @ rotated.T  # [query heads, coded]
        span = slice(place.start, place.start + count)
        if keys.magnitudes is not None:
            logits *= keys.magnitudes[span]
        if place.bits >= 0:
            assert seen.bits is not None, "a place has bits"
            bits = seen.bits[place.bits : place.bits + len(q) * -(-place.tokens // 8)].view(len(q), -1)
            logits[:, : place.tokens].masked_fill_(~unpack_bits(bits, place.tokens), float("-inf"))
        window = slice(place.raw, place.raw + place.window)
        if place.window:
            logits = torch.cat([logits, q @ raw.keys[window].float().T], dim=1)
        of_stream = softmax.of_heads(scaling, slice(stream * len(q), (stream + 1) * len(q)))
        weights = softmax.weights(softmax.capped_(logits * softmax.plain(scaling), scaling), of_stream)
        coded = weights[:, :count]
        if values.magnitudes is not None:
            coded = coded * values.magnitudes[span].float()
        # a book has fewer entries than references: sum the weights of each entry first
        references = view_references(values.references, place.value_references, place.value_width, count)
        end = books[bisect_right(books, place.value_book)] if count else place.value_book
        rows = values.entries[place.value_book : end]
        by_entry = coded.new_zeros(len(q), len(rows)).scatter_add_(1, references.long().expand(len(q), -1), coded)
        answer = by_entry @ rows.float()
        if place.window:
            answer += weights[:, count:] @ raw.values[window].float()
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
