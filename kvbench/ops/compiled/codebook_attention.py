"""Attention over a codebook cache, on a CPU."""

import numpy as np
import torch
from numba import prange
from torch import Tensor

from kvbench.ops.codebook_layout import BITS, KEYS, POSITIONS, RAW, START, TOKENS, VALUES, WINDOW
from kvbench.ops.compiled.loops import add_rows, loop, row_products, shared


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
        turns.flatten(1).numpy(),
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


BLOCK = 128  # tokens whose keys are turned at a time, a multiple of 8: they stay in a core's cache


# Rows of larger arrays go to functions of their own, which Numba compiles to vector instructions.


@shared
def key_logits(
    query, entries, references, magnitudes, positions, bits, raw, turns, places, prompt, decoded, logits
):  # fmt: skip
    """Write the products of query [streams, g, head_dim] with coded and then raw keys to logits [streams, g, most]."""
    streams, g, width = query.shape
    vectors, turning = entries.view(np.complex64), turns.view(np.complex64)
    blocks = (logits.shape[2] + BLOCK - 1) // BLOCK
    for task in prange(streams * blocks):
        stream, start = task // blocks, task % blocks * BLOCK
        place = places[stream]
        tokens, count = place[TOKENS], place[TOKENS] + decoded
        end = min(start + BLOCK, count)
        if start < end:
            which, where = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
            keys = np.empty((BLOCK, width // 2), np.complex64)
            entries_of(references, place[KEYS + 1] + start * place[KEYS + 2], place[KEYS + 2], which[: end - start])
            positions_of(positions, place[POSITIONS], tokens, prompt, start, where[: end - start])
            turn(vectors[place[KEYS] :], turning, which[: end - start], where[: end - start], keys)
            for q in range(g):
                own = logits[stream, q, start:end]
                row_products(query[stream, q], keys.view(np.float32)[: end - start], own)
                if len(magnitudes):
                    scale(own, magnitudes[place[START] + start : place[START] + end])
                if place[BITS] >= 0:
                    hide(own, bits[place[BITS] + q * ((tokens + 7) // 8) + start // 8 :], min(tokens, end) - start)
        if start + BLOCK >= logits.shape[2]:
            for q in range(g):
                rows = raw[place[RAW] : place[RAW] + place[WINDOW]]
                row_products(query[stream, q], rows, logits[stream, q, count:])


@loop
def turn(vectors, turns, which, where, out):
    """Write the vectors of `which`, turned to the positions `where`, to out; complex numbers are pairs of channels."""
    turned = turns.shape[1]
    for token in range(len(which)):
        own, by, to = vectors[which[token]], turns[where[token]], out[token]
        for pair in range(turned):
            to[pair] = own[pair] * by[pair]
        for pair in range(turned, len(own)):
            to[pair] = own[pair]


@loop
def entries_of(references, first, size, which):
    """Write the number of each token's entry to `which`, and return how many entries there are up to the last one."""
    used = np.int64(0)
    for token in range(len(which)):
        number = np.int64(0)
        for byte in range(size):  # the lowest first
            number |= np.int64(references[first + token * size + byte]) << (8 * byte)
        which[token] = number
        used = max(used, number + 1)
    return used


@loop
def positions_of(positions, first, tokens, prompt, start, where):
    """Write the positions of the tokens from `start` on to `where`: as stored, and then those of decoded tokens."""
    for place in range(len(where)):
        token = start + place
        if token >= tokens:
            where[place] = prompt + token - tokens
        else:
            where[place] = np.int64(positions[first + token]) if first >= 0 else np.int64(token)


@loop
def scale(out, factors):
    for token in range(len(factors)):
        out[token] *= factors[token]


@loop
def hide(out, bits, tokens):
    """The logits of tokens without a bit become -inf."""
    for token in range(tokens):
        if not bits[token // 8] >> (token % 8) & 1:
            out[token] = -np.inf


@shared
def weighted_values(weights, entries, references, magnitudes, raw, places, decoded, out):
    """Add the sums of coded and raw values, times weights [streams, g, most], to out [streams, g, head_dim].

    Weights are added up for each entry first: there are fewer entries than tokens.
    """
    streams, g, _ = out.shape
    which, used = np.empty((streams, weights.shape[2]), np.int64), np.empty(streams, np.int64)
    for stream in prange(streams):
        place = places[stream]
        used[stream] = entries_of(
            references, place[VALUES + 1], place[VALUES + 2], which[stream, : place[TOKENS] + decoded]
        )
    for task in prange(streams * g):
        stream, q = task // g, task % g
        place, own = places[stream], weights[stream, q]
        book, count = place[VALUES], place[TOKENS] + decoded
        if len(magnitudes):
            scale(own, magnitudes[place[START] : place[START] + count])
        shares = np.zeros(used[stream], np.float32)  # each entry's part of all weights
        gather(own, which[stream, :count], shares)
        add_rows(shares, entries[book : book + used[stream]], out[stream, q])
        add_rows(own[count : count + place[WINDOW]], raw[place[RAW] : place[RAW] + place[WINDOW]], out[stream, q])


@loop
def gather(weights, which, shares):
    for token in range(len(which)):
        shares[which[token]] += weights[token]
