"""Attention with a bias of each key."""

import torch
from torch import Tensor

from kvbench.ops.attention import bent_attention
from kvbench.ops.sdpa import as_rows, sdpa
from kvbench.ops.softmax import Scaling, Softmax


def biased_attention(query: Tensor, keys: Tensor, values: Tensor, bias: Tensor, scaling: Scaling) -> Tensor:
    """softmax(QKᵀ·scaling + bias)V; causal when there is more than one query: the last query sees the last key.

    query [1, num_attention_heads, q, head_dim]; keys, values [1, heads, len, head_dim]; bias [heads, len], added after
    a soft cap.
    """
    q, length = query.shape[2], keys.shape[2]
    if isinstance(scaling, Softmax):
        return bent_attention(query, keys, values, scaling, bias=bias)
    added = bias.to(query.dtype)[:, None, None]  # [heads, 1, 1, len]
    if q > 1:
        seen = torch.ones(q, length, dtype=torch.bool, device=query.device).tril(length - q)
        added = added.masked_fill(~seen, float("-inf"))
    out = sdpa(*as_rows(query, keys, values), scaling, added)
    return out.reshape(query.shape)
