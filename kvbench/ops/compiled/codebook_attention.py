"""Attention over a codebook cache, on a CPU."""

import numpy as np
import torch
from torch import Tensor

from kvbench.ops.codebook_layout import BITS, KEYS, POSITIONS, RAW, START, TOKENS, VALUES, WINDOW
from kvbench.ops.compiled.loops import loop


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
    turns: Tensor,
    layout: Tensor,
    longest: int,
    prompt: int,
    decoded: int,
    scaling: float,
) -> Tensor:
    """See `kvbench.ops.codebook_attention`."""
    places = layout.numpy()
    most = int((places[:, TOKENS] + places[:, WINDOW]).max()) + decoded
    grouped = query.float() * scaling
    logits = grouped.new_full((*grouped.shape[:2], most), float("-inf"))
    nothing = np.empty(0, np.uint8)
    key_logits(
        grouped.numpy(),
        *_coded(key_entries, key_references, key_magnitudes),
        nothing if positions is None else positions.numpy(),
        nothing if bits is None else bits.numpy(),
        raw_keys.float().numpy(),
        turns.numpy(),
        places,
        prompt,
        decoded,
        logits.numpy(),
    )
    out = torch.zeros_like(grouped)
    coded = _coded(value_entries, value_references, value_magnitudes)
    weighted_values(logits.softmax(dim=-1).numpy(), *coded, raw_values.float().numpy(), places, decoded, out.numpy())
    return out.to(query.dtype)


def _coded(entries: Tensor, references: Tensor, magnitudes: Tensor | None) -> tuple[np.ndarray, ...]:
    """Without magnitudes: an empty array."""
    magnitudes = entries.new_empty(0) if magnitudes is None else magnitudes
    return entries.float().numpy(), references.numpy(), magnitudes.float().numpy()


@loop
def reference(references, first, width, token):
    """The number of `width` bytes, lowest first, that `token` has in references uint8 [bytes] from `first` on."""
    number = 0
    for byte in range(width):
        number |= np.int64(references[first + token * width + byte]) << (8 * byte)
    return number


@loop
def key_logits(
    query, entries, references, magnitudes, positions, bits, raw, turns, places, prompt, decoded, logits
):  # fmt: skip
    """Write the products of query [streams, g, head_dim] with coded and then raw keys to logits [streams, g, most]."""
    streams, g, width = query.shape
    pairs = turns.shape[1]
    key = np.empty(width, np.float32)
    for stream in range(streams):
        place = places[stream]
        tokens, stride = place[TOKENS], (place[TOKENS] + 7) // 8
        for token in range(tokens + decoded):
            entry = place[KEYS] + reference(references, place[KEYS + 1], place[KEYS + 2], token)
            if token >= tokens:
                position = prompt + token - tokens
            elif place[POSITIONS] >= 0:
                position = np.int64(positions[place[POSITIONS] + token])
            else:
                position = token
            for pair in range(pairs):
                cosine, sine = turns[position, pair, 0], turns[position, pair, 1]
                real, imaginary = entries[entry, 2 * pair], entries[entry, 2 * pair + 1]
                key[2 * pair] = real * cosine - imaginary * sine
                key[2 * pair + 1] = real * sine + imaginary * cosine
            for c in range(2 * pairs, width):
                key[c] = entries[entry, c]
            magnitude = magnitudes[place[START] + token] if len(magnitudes) else np.float32(1)
            for q in range(g):
                if token < tokens and place[BITS] >= 0:
                    byte = bits[place[BITS] + q * stride + token // 8]
                    if not byte >> (token % 8) & 1:
                        continue
                product = np.float32(0)
                for c in range(width):
                    product += query[stream, q, c] * key[c]
                logits[stream, q, token] = product * magnitude
        for token in range(place[WINDOW]):
            for q in range(g):
                product = np.float32(0)
                for c in range(width):
                    product += query[stream, q, c] * raw[place[RAW] + token, c]
                logits[stream, q, tokens + decoded + token] = product


@loop
def weighted_values(weights, entries, references, magnitudes, raw, places, decoded, out):
    """Add the sums of coded and raw values, times weights [streams, g, most], to out [streams, g, head_dim]."""
    streams, g, width = out.shape
    for stream in range(streams):
        place = places[stream]
        count = place[TOKENS] + decoded
        for token in range(count):
            entry = place[VALUES] + reference(references, place[VALUES + 1], place[VALUES + 2], token)
            magnitude = magnitudes[place[START] + token] if len(magnitudes) else np.float32(1)
            for q in range(g):
                weight = weights[stream, q, token] * magnitude
                for c in range(width):
                    out[stream, q, c] += weight * entries[entry, c]
        for token in range(place[WINDOW]):
            for q in range(g):
                weight = weights[stream, q, count + token]
                for c in range(width):
                    out[stream, q, c] += weight * raw[place[RAW] + token, c]
