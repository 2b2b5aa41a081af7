"""Attention of one decoded token over packed codes, on a CPU."""

from collections.abc import Callable
from functools import cache
from typing import NamedTuple

import numpy as np
import torch
from numba import prange
from numba.misc.special import literally
from torch import Tensor

from kvbench.ops.compiled.loops import add_rows, loop, row_products, shared, softmax, whole


def quantised_attention(
    query: Tensor,
    key_codes: Tensor,
    key_scale: Tensor,
    key_minimum: Tensor,
    key_rows: Tensor,
    value_codes: Tensor,
    value_scale: Tensor,
    value_minimum: Tensor,
    value_rows: Tensor,
    lengths: Tensor,
    longest: int,
    ring: int,
    key_bits: int,
    value_bits: int,
    group: int,
    scaling: float,
) -> Tensor:
    """See `kvbench.ops.quantised_attention`."""
    heads, length = key_rows.shape[0], int(lengths[0])
    coded, older = length - length % ring, max(length - ring, 0)
    grouped = query.float().view(heads, -1, query.shape[-1])
    out = torch.empty_like(grouped)
    attend(key_bits, value_bits)(
        grouped.numpy(),
        *_arrays(key_codes, key_scale, key_minimum),
        key_rows.float().numpy(),
        *_arrays(value_codes, value_scale, value_minimum),
        value_rows.float().numpy(),
        length,
        coded,
        older,
        group,
        ring,
        scaling,
        out.numpy(),
    )
    return out.view(query.shape).to(query.dtype)


class Coded(NamedTuple):
    codes: np.ndarray
    scale: np.ndarray
    minimum: np.ndarray


def _arrays(codes: Tensor, scale: Tensor, minimum: Tensor) -> Coded:
    return Coded(whole(codes), whole(scale.float()), whole(minimum.float()))


BLOCK = 128  # tokens whose values are decoded at a time: they stay in a core's cache


@cache
def attend(key_bits: int, value_bits: int) -> Callable[..., None]:
    """The loop that writes the answers to queries [heads, g, head_dim] to out.

    Of `length` keys the first `coded_keys` are codes, and the others the first of recent_keys [heads, rows, head_dim];
    of the values the first `coded_values`, and the others are recent_values [heads, at most ring, head_dim], in which
    value i is row i mod ring.
    """
    key_planes, planes = 8 // key_bits, 8 // value_bits
    key_mask = np.uint8(2**key_bits - 1)

    @shared
    def run(
        query: np.ndarray, key_codes: np.ndarray, key_scale: np.ndarray, key_minimum: np.ndarray,
        recent_keys: np.ndarray, codes: np.ndarray, scale: np.ndarray, minimum: np.ndarray, recent_values: np.ndarray,
        length: int, coded_keys: int, coded_values: int, group: int, ring: int, scaling: float, out: np.ndarray,
    ) -> None:  # fmt: skip
        heads, g, width = query.shape
        logits = np.empty((heads, g, length), np.float32)
        groups, rows = coded_keys // group, group // key_planes
        for task in prange(heads * (groups + 1)):
            head, number = task // (groups + 1), task % (groups + 1)
            if number == groups:
                for q in range(g):
                    own = logits[head, q, coded_keys:]
                    row_products(query[head, q], recent_keys[head, : len(own)], own)
                continue
            scaled = np.empty((g, width), np.float32)
            keys = np.empty((key_planes, width), np.float32)
            for q in range(g):
                base = np.float32(0)
                for c in range(width):
                    scaled[q, c] = query[head, q, c] * key_scale[head, number, c]
                    base += query[head, q, c] * key_minimum[head, number, c]
                for token in range(number * group, number * group + group):
                    logits[head, q, token] = base
            for row in range(rows):
                for c in range(width):
                    byte = key_codes[head, number * rows + row, c]
                    for p in range(key_planes):  # in 8 bits all the way: wider numbers are no vector instructions
                        keys[p, c] = np.float32(np.uint8(np.uint8(byte >> np.uint8(p * key_bits)) & key_mask))
                for p in range(key_planes):
                    for q in range(g):
                        product = np.float32(0)
                        for c in range(width):
                            product += scaled[q, c] * keys[p, c]
                        logits[head, q, number * group + p * rows + row] += product
        for task in prange(heads * g):
            softmax(logits[task // g, task % g], np.float32(scaling))
        part = group // planes
        stored = width // planes  # bytes of a token
        blocks = (coded_values + BLOCK - 1) // BLOCK
        sums = np.zeros((heads, blocks, g, width), np.float32)
        for task in prange(heads * blocks):
            head, block = task // blocks, task % blocks
            start, end = block * BLOCK, min((block + 1) * BLOCK, coded_values)
            factor, low = np.empty((BLOCK, stored), np.float32), np.empty((BLOCK, stored), np.float32)
            values = np.empty((BLOCK, width), np.float32)
            spread(scale[head, start:end], part, factor)
            spread(minimum[head, start:end], part, low)
            decode(codes[head, start:end].ravel(), factor.ravel(), low.ravel(), values.ravel(), planes)
            for q in range(g):
                add_rows(logits[head, q, start:end], values, sums[head, block, q])
        closed = coded_values - coded_values % ring + ring  # the value that is row 0 again
        for task in prange(heads * g):
            head, q = task // g, task % g
            answer, own = out[head, q], logits[head, q]
            answer[:] = 0
            for block in range(blocks):
                for number in range(width // group):
                    for p in range(planes):
                        for c in range(part):
                            place = (number * part + c) * planes + p
                            answer[number * group + p * part + c] += sums[head, block, q, place]
            add_rows(own[coded_values:closed], recent_values[head, coded_values % ring :], answer)
            add_rows(own[closed:], recent_values[head], answer)

    return run


@loop
def decode(codes: np.ndarray, factor: np.ndarray, low: np.ndarray, out: np.ndarray, planes: int) -> None:
    """Bytes [n] as float32 [n, planes]."""
    bits = 8 // literally(planes)
    for i in range(len(codes)):
        for p in range(planes):  # in 8 bits all the way: wider numbers are no vector instructions
            code = np.float32(np.uint8(np.uint8(codes[i] >> np.uint8(p * bits)) & np.uint8(2**bits - 1)))
            out[i * planes + p] = code * factor[i] + low[i]


@loop
def spread(of_groups: np.ndarray, part: int, out: np.ndarray) -> None:
    """Numbers of groups [n, groups] for each of their `part` bytes, out [n, groups · part]."""
    for token in range(len(of_groups)):
        for number in range(of_groups.shape[1]):
            for c in range(part):
                out[token, number * part + c] = of_groups[token, number]
