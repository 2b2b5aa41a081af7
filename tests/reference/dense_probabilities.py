"""Causal attention weights, all at once."""

import torch
from torch import Tensor


def dense_logits(queries: Tensor, keys: Tensor, scaling: float) -> Tensor:
    """float64 [heads, q, len] of queries [heads, q, head_dim] and keys [num_key_value_heads, len, head_dim]."""
    group = queries.shape[0] // keys.shape[0]
    return queries.double() @ keys.double().repeat_interleave(group, 0).mT * scaling


def dense_probabilities(queries: Tensor, keys: Tensor, scaling: float) -> tuple[Tensor, Tensor]:
    """Causal softmax of n queries over n keys, float64 [heads, n, n], and the logits without a mask."""
    logits = dense_logits(queries, keys, scaling)
    n = keys.shape[1]
    return logits.masked_fill(torch.ones(n, n).triu(1).bool(), float("-inf")).softmax(-1), logits
