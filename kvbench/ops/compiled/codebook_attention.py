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


# What can be computed once for each entry is not computed for each token: there are fewer entries than tokens. Rows of
# larger arrays go to functions of their own, which Numba compiles to vector instructions.


@shared
def key_logits(
    query, entries, references, magnitudes, positions, bits, raw, turns, places, prompt, decoded, logits
):  # fmt: skip
    """Write the products of query [streams, g, head_dim] with coded and then raw keys to logits [streams, g, most].

    With pairs of channels as complex numbers, the product of a query q and an entry e that is turned by t is the real
    part of q · conj(e) · conj(t), summed over the pairs; q · conj(e) is the same at every position.
    """
    streams, g, _ = query.shape
    queries, vectors = query.view(np.complex64), entries.view(np.complex64)
    which = np.empty((streams, logits.shape[2]), np.int64)
    where, used = np.empty_like(which), np.empty(streams, np.int64)
    for stream in prange(streams):
        place = places[stream]
        count = place[TOKENS] + decoded
        used[stream] = entries_of(references, place[KEYS + 1], place[KEYS + 2], which[stream, :count])
        positions_of(positions, place[POSITIONS], place[TOKENS], prompt, where[stream, :count])
    for task in prange(streams * g):
        stream, q = task // g, task % g
        place, own = places[stream], logits[stream, q]
        tokens, seen, book = place[TOKENS], place[BITS], place[KEYS]
        count = tokens + decoded
        terms = np.empty((used[stream], vectors.shape[1]), np.complex64)
        multiply(queries[stream, q], vectors[book : book + used[stream]], terms)
        turned_products(terms.view(np.float32), turns, which[stream, :count], where[stream, :count], own)
        if len(magnitudes):
            scale(own, magnitudes[place[START] : place[START] + count])
        if seen >= 0:
            hide(own, bits[seen + q * ((tokens + 7) // 8) :], tokens)
        row_products(query[stream, q], raw[place[RAW] : place[RAW] + place[WINDOW]], own[count:])


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
def positions_of(positions, first, tokens, prompt, where):
    """Write the position of each token to `where`: of the prompt's as they are stored, then of the decoded ones."""
    for token in range(tokens):
        where[token] = np.int64(positions[first + token]) if first >= 0 else np.int64(token)
    for token in range(tokens, len(where)):
        where[token] = prompt + token - tokens


@loop
def multiply(query, entries, out):
    for entry in range(len(entries)):
        for pair in range(len(query)):
            out[entry, pair] = query[pair] * np.conj(entries[entry, pair])


@loop
def turned_products(terms, turns, which, where, out):
    width, turned = terms.shape[1], turns.shape[1]
    for token in range(len(which)):
        own, turn = terms[which[token]], turns[where[token]]
        total = np.float32(0)
        for c in range(turned):
            total += own[c] * turn[c]
        for c in range(turned, width, 2):  # not turned: the real parts
            total += own[c]
        out[token] = total


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
    """Add the sums of coded and raw values, times weights [streams, g, most], to out [streams, g, head_dim]."""
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
