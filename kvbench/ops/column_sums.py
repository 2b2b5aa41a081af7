"""The attention that every key receives, summed over queries in O(n) memory: H2O's and, for few queries, SnapKV's."""

from typing import NamedTuple

import torch
from torch import Tensor

from kvbench.ops.attention import causal_probabilities, grouped_logits
from kvbench.ops.operator import operator
from kvbench.ops.softmax import Scaling, of_heads

# Query rows per tile of attention weights on the CPU: a constant, so memory stays O(n · heads).
TILE = 128
# Keys per tile if log-sum-exps are known: whole rows are not needed, and weights fit in a core's cache.
KEYS = 1024


class ColumnSums(NamedTuple):
    sums: Tensor  # float32 [num_attention_heads, len], the attention that every key receives
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
    """The total attention that every key receives from the queries, and every query's log-sum-exp.

    queries [num_attention_heads, q, head_dim] at positions start … start+q-1, keys [num_key_value_heads, len, head_dim]
    at positions 0 … len-1, both after RoPE. Queries from position `first_causal` on attend to the keys up to their own
    position, earlier queries to all keys. weights [q] multiply the attention of each query. lse [num_attention_heads,
    q]: log-sum-exps that attention has computed already, which saves half of the work.

    Returns float32 sums [num_attention_heads, len] and log-sum-exps [num_attention_heads, q]. Without weights the sums
    of a head add up to q. If `sums` is passed, the result is added to its first len columns in place.
    """
    if sums is None:
        sums = torch.zeros(queries.shape[0], keys.shape[1], device=keys.device)
    return ColumnSums(sums, add_column_sums(queries, keys, scaling, start, first_causal, weights, sums, lse))


def _fake(queries: Tensor, *rest: object) -> Tensor:
    heads, q, _ = queries.shape
    return queries.new_empty(heads, q, dtype=torch.float32)


@operator(launches=2, fake=_fake, mutates=("sums",))  # one launch if log-sum-exps are passed
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
    """Add the result of `column_sums` to `sums`, and return the log-sum-exps: `lse` if all queries are causal."""
    if lse is not None and first_causal <= start:
        add_known(queries, keys, scaling, start, weights, sums, lse)
        return lse.clone(memory_format=torch.contiguous_format)  # an operator returns none of its arguments
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
        head_scaling = of_heads(scaling, rows)
        for at, end, seen in tiles:
            first = length if at < seeing else start + at  # after all keys, so that no key is masked
            attention, lse[rows, at:end] = causal_probabilities(queries[rows, at:end], key[:seen], first, head_scaling)
            if weights is None:
                sums[rows, :seen] += attention.sum(dim=1)
            else:
                sums[rows, :seen] += torch.einsum("gtn,t->gn", attention, weights[at:end])
    return lse


def add_known(
    queries: Tensor, keys: Tensor, scaling: Scaling, start: int, weights: Tensor | None, sums: Tensor, lse: Tensor
) -> None:
    """`add_tiled` for causal queries whose log-sum-exps are known: one pass over the logits of a tile."""
    grouped, of_rows = (x.unflatten(0, (len(keys), -1)) for x in (queries, lse))  # [num_key_value_heads, group, q, …]
    for key, query, log_sums, total in zip(
        keys.float(), grouped, of_rows, sums.unflatten(0, (len(keys), -1)), strict=True
    ):
        for at in range(0, query.shape[1], TILE):
            rows, shifts = query[:, at : at + TILE].float(), log_sums[:, at : at + TILE, None]
            first = start + at  # position of the tile's first query
            seen = first + rows.shape[1]
            for left in range(0, seen, KEYS):
                right = min(left + KEYS, seen)
                attention = grouped_logits(rows, key[left:right], scaling).sub_(shifts)
                if right > first + 1:
                    columns = torch.arange(left, right, device=keys.device)
                    hidden = columns > torch.arange(first, seen, device=keys.device)[:, None]
                    attention.masked_fill_(hidden, float("-inf"))
                attention.exp_()
                if weights is None:
                    total[:, left:right] += attention.sum(dim=1)
                else:
                    total[:, left:right] += torch.einsum("gtn,t->gn", attention, weights[at : at + TILE])
