"""The attention that every key receives, summed over queries in O(n) memory: H2O's scores; SnapKV's, of few queries."""

from typing import NamedTuple

import torch
from torch import Tensor

from kvbench.ops.attention import causal_probabilities
from kvbench.ops.operator import operator
from kvbench.ops.softmax import Scaling, of_heads

# Query rows per tile of attention weights on the CPU: a constant, so memory stays O(n · heads).
TILE = 128


class ColumnSums(NamedTuple):
    sums: Tensor  # float32 [num_attention_heads, len], of every key
    lse: Tensor  # float32 [num_attention_heads, q], the log-sum-exp of every query


def column_sums(
    queries: Tensor,
    keys: Tensor,
    scaling: Scaling,
    start: int = 0,
    first_causal: int = 0,
    weights: Tensor | None = None,
    sums: Tensor | None = None,
    lse: Tensor | None = None,
) -> ColumnSums:
    """Total attention every key receives from the queries, and every query's log-sum-exp.

    queries [num_attention_heads, q, head_dim] at positions start … start+q-1, keys [num_key_value_heads, len, head_dim]
    at positions 0 … len-1, both after RoPE. Queries from position `first_causal` on attend to the keys up to their own
    position; those before it attend to all of the keys. weights [q] multiply what each query gives. lse
    [num_attention_heads, q] are the log-sum-exps where attention had them, which saves a GPU half of the work.

    Returns float32 sums [num_attention_heads, len] and log-sum-exps [num_attention_heads, q]. Without weights the sums
    of a head add up to q. Given `sums`, it is added to in place, in its first len columns.
    """
    if sums is None:
        sums = torch.zeros(queries.shape[0], keys.shape[1], device=keys.device)
    return ColumnSums(sums, add_column_sums(queries, keys, scaling, start, first_causal, weights, sums, lse))


@operator(
    "add_column_sums(Tensor queries, Tensor keys, float scaling, int start, int first_causal, Tensor? weights, "
    "Tensor(a!) sums, Tensor? lse) -> Tensor",
    launches=2,  # one where log-sum-exps are given
)
def add_column_sums(
    queries: Tensor,
    keys: Tensor,
    scaling: Scaling,
    start: int,
    first_causal: int,
    weights: Tensor | None,
    sums: Tensor,
    lse: Tensor | None = None,
) -> Tensor:
    """Add to `sums` what `column_sums` returns, and return the log-sum-exps: here always those of the weights made."""
    return add_tiled(queries, keys, scaling, start, first_causal, weights, sums, TILE)


def add_tiled(
    queries: Tensor,
    keys: Tensor,
    scaling: Scaling,
    start: int,
    first_causal: int,
    weights: Tensor | None,
    sums: Tensor,
    tile: int,
) -> Tensor:
    """`add_column_sums` with the weights of `tile` query rows of one KV head at a time."""
    heads, q, _ = queries.shape
    length = keys.shape[1]
    lse = torch.empty(heads, q, device=keys.device)
    seeing = min(max(first_causal - start, 0), q)  # queries that attend to all keys
    tiles = [(at, min(at + tile, seeing), length) for at in range(0, seeing, tile)]
    tiles += [(at, min(at + tile, q), start + min(at + tile, q)) for at in range(seeing, q, tile)]
    group = heads // len(keys)
    for head, key in enumerate(keys):
        key = key.float()  # once per head, not once per tile
        rows = slice(head * group, (head + 1) * group)
        own = of_heads(scaling, rows)
        for at, end, seen in tiles:
            first = length if at < seeing else start + at  # where nothing is to be masked, behind all keys
            attention, lse[rows, at:end] = causal_probabilities(queries[rows, at:end], key[:seen], first, own)
            if weights is None:
                sums[rows, :seen] += attention.sum(dim=1)
            else:
                sums[rows, :seen] += torch.einsum("gtn,t->gn", attention, weights[at:end])
    return lse
