"""What operators return, without its numbers: shapes, dtypes and devices, by which `torch.compile` traces a call.

A function has the name and the arguments of an operator and reads no tensor's values. Results are contiguous, whatever
computes them.
"""

import torch
from torch import Tensor

from kvbench.ops.greedy_cover import Covers
from kvbench.ops.quantise import Quantised


def packed_append(*args: object) -> None:
    return None


def ring_append(*args: object) -> None:
    return None


def packed_attention(query: Tensor, keys: Tensor, values: Tensor, *rest: object) -> Tensor:
    return query.new_empty(*query.shape[:3], values.shape[1])


def quantise(x: Tensor, bits: int, group: int, axis: int) -> Quantised:
    codes, groups = list(x.shape), list(x.shape)
    codes[axis] = x.shape[axis] * bits // 8
    groups[axis] = x.shape[axis] // group
    return Quantised(x.new_empty(codes, dtype=torch.uint8), x.new_empty(groups), x.new_empty(groups))


def dequantise(packed: Tensor, scale: Tensor, minimum: Tensor, bits: int, group: int, axis: int) -> Tensor:
    rows = list(scale.shape)
    rows[axis] = scale.shape[axis] * group
    return scale.new_empty(rows)


def block_values(stored: Tensor, header: int, bits: int, levels: Tensor, scale: Tensor, minimum: Tensor) -> Tensor:
    return scale.new_empty(len(stored), (stored.shape[1] - header) * 8 // bits)


def quantised_attention(query: Tensor, *rest: object) -> Tensor:
    return query.new_empty(query.shape)


def codebook_append(*args: object) -> None:
    return None


def codebook_attention(query: Tensor, *rest: object) -> Tensor:
    return query.new_empty(query.shape)


def merged_rows(directions: Tensor, magnitudes: Tensor, retained: Tensor, bits: Tensor) -> Tensor:
    heads, k, head_dim = retained.shape
    return retained.new_empty(heads, k + directions.shape[1], head_dim)


def turn_back(x: Tensor, *rest: object) -> Tensor:
    return x.new_empty(x.shape, dtype=torch.float32)


def greedy_covers(x: Tensor, lengths: Tensor, counts: Tensor, theta: float) -> Covers:
    return Covers(counts.new_empty(counts.shape), lengths.new_empty(lengths.shape), counts.new_empty(counts.shape))


def add_column_sums(queries: Tensor, *rest: object) -> Tensor:
    heads, q, _ = queries.shape
    return queries.new_empty(heads, q, dtype=torch.float32)
