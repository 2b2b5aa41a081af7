"""Attention of one decoded token over packed codes, on a CPU."""

from functools import cache

import numpy as np
from torch import Tensor

from kvbench.ops.compiled.loops import loop, whole


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
    logits = grouped.new_empty(*grouped.shape[:2], length)
    stored = _arrays(key_codes, key_scale, key_minimum)
    key_logits(key_bits)(grouped.numpy(), *stored, coded, group, logits.numpy())
    logits[..., coded:] = grouped @ key_rows[:, : length - coded].float().mT
    weights = logits.softmax(dim=-1)
    recent = weights[..., older:]
    out = (recent.roll(older % ring, dims=-1) if older else recent) @ value_rows[:, : length - older].float()
    stored = _arrays(value_codes, value_scale, value_minimum)
    weighted_values(value_bits)(weights.numpy(), *stored, older, group, out.numpy())
    return out.view(query.shape).to(query.dtype)


def _arrays(codes: Tensor, scale: Tensor, minimum: Tensor) -> tuple[np.ndarray, ...]:
    return whole(codes), whole(scale.float()), whole(minimum.float())


@cache
def key_logits(bits: int):
    """The loop that writes the products of queries [heads, g, head_dim] and `coded` keys of `bits` bits to logits
    [heads, g, at least coded]."""
    planes = 8 // bits
    mask = np.uint8(2**bits - 1)

    @loop
    def run(query, codes, scale, minimum, coded, group, logits):
        heads, g, width = query.shape
        rows = group // planes
        scaled = np.empty((g, width), np.float32)
        keys = np.empty((planes, width), np.float32)
        for head in range(heads):
            for number in range(coded // group):
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
    """The loop that adds the sum of `coded` values of `bits` bits, times weights [heads, g, at least coded], to out
    [heads, g, head_dim]."""
    planes = 8 // bits
    mask = np.uint8(2**bits - 1)

    @loop
    def run(weights, codes, scale, minimum, coded, group, out):
        heads, g, width = out.shape
        groups, part = width // group, group // planes
        stored = groups * part  # bytes of a token
        factor, low = np.empty(stored, np.float32), np.empty(stored, np.float32)
        values = np.empty((planes, stored), np.float32)
        total = np.empty((g, planes, stored), np.float32)
        for head in range(heads):
            total[:] = 0
            for token in range(coded):
                for number in range(groups):
                    own_factor, own_low = scale[head, token, number], minimum[head, token, number]
                    for c in range(part):
                        factor[number * part + c] = own_factor
                        low[number * part + c] = own_low
                for c in range(stored):
                    byte = codes[head, token, c]
                    for p in range(planes):
                        code = np.uint8(np.uint8(byte >> np.uint8(p * bits)) & mask)
                        values[p, c] = np.float32(code) * factor[c] + low[c]
                for q in range(g):
                    weight = weights[head, q, token]
                    for p in range(planes):
                        for c in range(stored):
                            total[q, p, c] += weight * values[p, c]
            for q in range(g):
                for number in range(groups):
                    for p in range(planes):
                        for c in range(part):
                            out[head, q, number * group + p * part + c] += total[q, p, number * part + c]

    return run
