"""Attention of the last queries of a prompt, reduced to one number per query or per key."""

import torch
from torch import Tensor

from kvbench.ops.attention import grouped_logits
from kvbench.ops.column_sums import column_sums
from kvbench.ops.softmax import Scaling


def attention_mass(queries: Tensor, keys: Tensor, scaling: Scaling, chosen: Tensor) -> Tensor:
    """The share of the last w queries' attention that goes to the keys at positions `chosen` [k].

    exp(logsumexp over the chosen visible keys - logsumexp over all visible keys), float32 [num_attention_heads, w]: it
    needs a flash kernel's log-sum-exp but no attention weights.
    queries [num_attention_heads, w, head_dim] are the last of n, keys [num_key_value_heads, n, head_dim].
    """
    start = keys.shape[1] - queries.shape[1]
    lse = column_sums(queries, keys, scaling, start).lse
    positions = torch.arange(start, keys.shape[1], device=keys.device)
    logits = grouped_logits(queries.unflatten(0, (keys.shape[0], -1)), keys[:, chosen], scaling)  # [kv, group, w, k]
    logits.masked_fill_(chosen > positions[:, None], float("-inf"))
    return (logits.logsumexp(dim=-1).flatten(0, 1) - lse).exp_()


def weighted_rows(queries: Tensor, keys: Tensor, scaling: Scaling, weights: Tensor) -> Tensor:
    """Attention of the last w queries, averaged over all heads and summed with one weight per query.

    queries [num_attention_heads, w, head_dim], keys [num_key_value_heads, n, head_dim], both after RoPE;
    weights [w]. Returns float32 [n].
    """
    start = keys.shape[1] - queries.shape[1]
    return column_sums(queries, keys, scaling, start, weights=weights).sums.mean(dim=0)
