"""Attention over a codebook cache, on a CPU."""

from typing import NamedTuple

import numpy as np
import torch
from numba import prange
from torch import Tensor

from kvbench.ops.codebook_layout import BITS, KEYS, POSITIONS, RAW, START, TOKENS, VALUES, WINDOW
from kvbench.ops.compiled.loops import add_rows, loop, row_products, shared, softmax


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
    scaling: float,
) -> Tensor:
    """See `kvbench.ops.codebook_attention`."""
    x = query.float()
    out = torch.empty_like(x)
    nothing = np.empty(0, np.uint8)
    attend(
        x.numpy(),
        *_coded(key_entries, key_references, key_magnitudes),
        *_coded(value_entries, value_references, value_magnitudes),
        nothing if positions is None else positions.numpy(),
        nothing if bits is None else bits.numpy(),
        raw_keys.float().numpy(),
        raw_values.float().numpy(),
        order.numpy(),
        turns.numpy(),
        layout.numpy(),
        prompt,
        int(decoded[0]),
        scaling,
        out.numpy(),
    )
    return out.to(query.dtype)


class Coded(NamedTuple):
    entries: np.ndarray
    references: np.ndarray
    magnitudes: np.ndarray


def _coded(entries: Tensor, references: Tensor, magnitudes: Tensor | None) -> Coded:
    """Without magnitudes: an empty array."""
    magnitudes = entries.new_empty(0) if magnitudes is None else magnitudes
    return Coded(entries.float().numpy(), references.numpy(), magnitudes.float().numpy())


BLOCK = 128  # tokens whose keys are turned at a time, a multiple of 8: they stay in a core's cache


# Rows of larger arrays go to functions of their own, which Numba compiles to vector instructions.


@shared
def attend(
    query: np.ndarray, key_entries: np.ndarray, key_references: np.ndarray, key_magnitudes: np.ndarray,
    value_entries: np.ndarray, value_references: np.ndarray, value_magnitudes: np.ndarray, positions: np.ndarray,
    bits: np.ndarray, raw_keys: np.ndarray, raw_values: np.ndarray, order: np.ndarray, turns: np.ndarray,
    places: np.ndarray, prompt: int, decoded: int, scaling: float, out: np.ndarray,
) -> None:  # fmt: skip
    """Write the answers to query [streams, g, head_dim] to out.

    Weights are added up for each value's entry first: there are fewer entries than tokens.
    """
    streams, g, width = query.shape
    most = 0
    for stream in range(streams):
        most = max(most, places[stream, TOKENS] + decoded + places[stream, WINDOW])
    paired = np.empty_like(query)
    for stream in range(streams):
        for q in range(g):
            for c in range(width):
                paired[stream, q, c] = query[stream, q, order[c]]
    vectors = key_entries.view(np.complex64)
    turning = turns.reshape(len(turns), -1).view(np.complex64)
    logits = np.empty((streams, g, most), np.float32)  # of coded and then raw keys
    blocks = (most + BLOCK - 1) // BLOCK
    for task in prange(streams * blocks):
        stream, start = task // blocks, task % blocks * BLOCK
        place = places[stream]
        tokens, count = place[TOKENS], place[TOKENS] + decoded
        end = min(start + BLOCK, count)
        if start < end:
            which, where = np.empty(BLOCK, np.int64), np.empty(BLOCK, np.int64)
            keys = np.empty((BLOCK, width // 2), np.complex64)
            entries_of(key_references, place[KEYS + 1] + start * place[KEYS + 2], place[KEYS + 2], which[: end - start])
            positions_of(positions, place[POSITIONS], tokens, prompt, start, where[: end - start])
            turn(vectors[place[KEYS] :], turning, which[: end - start], where[: end - start], keys)
            for q in range(g):
                own = logits[stream, q, start:end]
                row_products(paired[stream, q], keys.view(np.float32)[: end - start], own)
                if len(key_magnitudes):
                    scale(own, key_magnitudes[place[START] + start : place[START] + end])
                if place[BITS] >= 0:
                    hide(own, bits[place[BITS] + q * ((tokens + 7) // 8) + start // 8 :], min(tokens, end) - start)
        if start + BLOCK >= most:
            for q in range(g):
                rows = raw_keys[place[RAW] : place[RAW] + place[WINDOW]]
                row_products(paired[stream, q], rows, logits[stream, q, count:])
    which, used = np.empty((streams, most), np.int64), np.empty(streams, np.int64)
    for stream in prange(streams):
        place = places[stream]
        used[stream] = entries_of(
            value_references, place[VALUES + 1], place[VALUES + 2], which[stream, : place[TOKENS] + decoded]
        )
    for task in prange(streams * g):
        stream, q = task // g, task % g
        place, answer = places[stream], out[stream, q]
        book, count = place[VALUES], place[TOKENS] + decoded
        own = logits[stream, q, : count + place[WINDOW]]
        softmax(own, np.float32(scaling))
        if len(value_magnitudes):
            scale(own, value_magnitudes[place[START] : place[START] + count])
        shares = np.zeros(used[stream], np.float32)  # each entry's part of all weights
        gather(own, which[stream, :count], shares)
        answer[:] = 0
        add_rows(shares, value_entries[book : book + used[stream]], answer)
        add_rows(own[count:], raw_values[place[RAW] : place[RAW] + place[WINDOW]], answer)


@loop
def turn(vectors: np.ndarray, turns: np.ndarray, which: np.ndarray, where: np.ndarray, out: np.ndarray) -> None:
    """Write the vectors of `which`, turned to the positions `where`, to out; complex numbers are pairs of channels."""
    turned = turns.shape[1]
    for token in range(len(which)):
        own, by, to = vectors[which[token]], turns[where[token]], out[token]
        for pair in range(turned):
            to[pair] = own[pair] * by[pair]
        for pair in range(turned, len(own)):
            to[pair] = own[pair]


@loop
def entries_of(references: np.ndarray, first: int, size: int, which: np.ndarray) -> np.int64:
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
def positions_of(positions: np.ndarray, first: int, tokens: int, prompt: int, start: int, where: np.ndarray) -> None:
    """Write the positions of the tokens from `start` on to `where`: as stored, and then those of decoded tokens."""
    for place in range(len(where)):
        token = start + place
        if token >= tokens:
            where[place] = prompt + token - tokens
        else:
            where[place] = np.int64(positions[first + token]) if first >= 0 else np.int64(token)


@loop
def scale(out: np.ndarray, factors: np.ndarray) -> None:
    for token in range(len(factors)):
        out[token] *= factors[token]


@loop
def hide(out: np.ndarray, bits: np.ndarray, tokens: int) -> None:
    """The logits of tokens without a bit become -inf."""
    for token in range(tokens):
        if not bits[token // 8] >> (token % 8) & 1:
            out[token] = -np.inf


@loop
def gather(weights: np.ndarray, which: np.ndarray, shares: np.ndarray) -> None:
    for token in range(len(which)):
        shares[which[token]] += weights[token]
