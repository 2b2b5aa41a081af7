"""Attention of one decoded token over packed codes, on a CPU."""

from functools import cache

import numpy as np
import torch
from numba import literally, prange
from torch import Tensor

from kvbench.ops.compiled.loops import add_rows, loop, row_products, shared, whole


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
    length: int,
    ring: int,
    key_bits: int,
    value_bits: int,
    group: int,
    scaling: float,
) -> Tensor:
    """See `kvbench.ops.quantised_attention`."""
    heads, older, coded = key_rows.shape[0], value_codes.shape[1], key_scale.shape[1] * group
    grouped = (query.float() * scaling).view(heads, -1, query.shape[-1])
    logits, out = grouped.new_empty(*grouped.shape[:2], length), torch.zeros_like(grouped)
    stored = _arrays(key_codes, key_scale, key_minimum)
    key_logits(key_bits)(grouped.numpy(), *stored, key_rows.float().numpy(), coded, group, logits.numpy())
    weights = logits.softmax(dim=-1).numpy()
    stored = _arrays(value_codes, value_scale, value_minimum)
    weighted_values(value_bits)(weights, *stored, value_rows.float().numpy(), older, group, ring, out.numpy())
    return out.view(query.shape).to(query.dtype)


def _arrays(codes: Tensor, scale: Tensor, minimum: Tensor) -> tuple[np.ndarray, ...]:
    return whole(codes), whole(scale.float()), whole(minimum.float())


BLOCK = 128  # tokens whose values are decoded at a time: they stay in a core's cache


@cache
def key_logits(bits: int):
    """The loop that writes the products of queries [heads, g, head_dim] and all keys to logits [heads, g, length]: of
    `coded` keys of `bits` bits, and then of the first of rows [heads, at least length - coded, head_dim]."""
    planes = 8 // bits
    mask = np.uint8(2**bits - 1)

    @shared
    def run(query, codes, scale, minimum, recent, coded, group, logits):
        heads, g, width = query.shape
        groups, rows = coded // group, group // planes
        for task in prange(heads * (groups + 1)):
            head, number = task // (groups + 1), task % (groups + 1)
            if number == groups:
                for q in range(g):
                    own = logits[head, q, coded:]
                    row_products(query[head, q], recent[head, : len(own)], own)
                continue
            scaled = np.empty((g, width), np.float32)
            keys = np.empty((planes, width), np.float32)
            for q in range(g):
                base = np.float32(0)
                for c in range(width):
                    scaled[q, c] = query[head, q, c] * scale[head, number, c]
                    base += query[head, q, c] * minimum[head, number, c]
                for token in range(number * group, number * group + group):
                    logits[head, q, token] = base
            for row in range(rows):
                for c in range(width):
                    byte = codes[head, number * rows + row, c]
                    for p in range(planes):  # in 8 bits all the way: wider numbers are no vector instructions
                        keys[p, c] = np.float32(np.uint8(np.uint8(byte >> np.uint8(p * bits)) & mask))
                for p in range(planes):
                    for q in range(g):
                        product = np.float32(0)
                        for c in range(width):
                            product += scaled[q, c] * keys[p, c]
                        logits[head, q, number * group + p * rows + row] += product

    return run


@cache
def weighted_values(bits: int):
    """The loop that adds the sum of all values, times weights [heads, g, length], to out [heads, g, head_dim]: of
    `coded` values of `bits` bits, and of rows [heads, at most ring, head_dim], in which value i is row i mod ring."""
    planes = 8 // bits

    @shared
    def run(weights, codes, scale, minimum, recent, coded, group, ring, out):
        heads, g, width = out.shape
        part = group // planes
        stored = width // planes  # bytes of a token
        blocks = (coded + BLOCK - 1) // BLOCK
        sums = np.zeros((heads, blocks, g, width), np.float32)
        for task in prange(heads * blocks):
            head, block = task // blocks, task % blocks
            start, end = block * BLOCK, min((block + 1) * BLOCK, coded)
            factor, low = np.empty((BLOCK, stored), np.float32), np.empty((BLOCK, stored), np.float32)
            values = np.empty((BLOCK, width), np.float32)
            spread(scale[head, start:end], part, factor)
            spread(minimum[head, start:end], part, low)
            decode(codes[head, start:end].ravel(), factor.ravel(), low.ravel(), values.ravel(), planes)
            for q in range(g):
                add_rows(weights[head, q, start:end], values, sums[head, block, q])
        closed = coded - coded % ring + ring  # the value that is row 0 again
        for head in range(heads):
            for q in range(g):
                for block in range(blocks):
                    for number in range(width // group):
                        for p in range(planes):
                            for c in range(part):
                                place = (number * part + c) * planes + p
                                out[head, q, number * group + p * part + c] += sums[head, block, q, place]
                own = weights[head, q]
                add_rows(own[coded:closed], recent[head, coded % ring :], out[head, q])
                add_rows(own[closed:], recent[head], out[head, q])

    return run


@loop
def decode(codes, factor, low, out, planes):
    """Bytes [n] as float32 [n, planes]."""
    bits = 8 // literally(planes)
    for i in range(len(codes)):
        for p in range(planes):  # in 8 bits all the way: wider numbers are no vector instructions
            code = np.float32(np.uint8(np.uint8(codes[i] >> np.uint8(p * bits)) & np.uint8(2**bits - 1)))
            out[i * planes + p] = code * factor[i] + low[i]


@loop
def spread(of_groups, part, out):
    """Numbers of groups [n, groups] for each of their `part` bytes, out [n, groups · part]."""
    for token in range(len(of_groups)):
        for number in range(of_groups.shape[1]):
            for c in range(part):
                out[token, number * part + c] = of_groups[token, number]
