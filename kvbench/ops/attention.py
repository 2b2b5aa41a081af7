"""Attention, and attention weights of few queries."""

from typing import NamedTuple

import torch
from torch import Tensor
from torch.nn.attention.bias import causal_lower_right

from kvbench.ops.flex_attention import flexible, flexible_attention
from kvbench.ops.sdpa import sdpa
from kvbench.ops.softmax import Scaling, Softmax, capped_, log_sum, plain, weights

TILE = 512  # queries per tile of a sliding window
MOST_WEIGHTS = 2**24  # float32 attention weights that exist at a time


def dense_attention(query: Tensor, keys: Tensor, values: Tensor, scaling: Scaling) -> Tensor:
    """softmax(QKᵀ·scaling)V; causal when there is more than one query: the last query sees the last key.

    query [1, num_attention_heads, q, head_dim]; keys, values [1, heads, len, head_dim] with heads either
    num_key_value_heads or num_attention_heads. The call is the same as in transformers' SDPA attention, so a full cache
    gives the results of `model.generate` bit for bit.
    """
    if isinstance(scaling, Softmax):
        return bent_attention(query, keys, values, scaling)
    q, length = query.shape[2], keys.shape[2]
    mask = None
    if 1 < q < length:  # a block of tokens after those in the cache
        mask = lower_right(q, length, query.device)
    return sdpa(query, keys, values, scaling, mask, causal=q > 1 and mask is None)


def bent_attention(
    query: Tensor,
    keys: Tensor,
    values: Tensor,
    scaling: Softmax,
    seen: Tensor | None = None,
    bias: Tensor | None = None,
) -> Tensor:
    """`dense_attention` with a soft cap or sinks, for any rows of a batch. Weights are float32, for a tile of queries.

    seen, bool [.., q, len], replaces causality; bias [heads of keys, len] is added to capped logits. On a GPU, causal
    attention of a prompt makes no weights.
    """
    if seen is None and bias is None and flexible(query):
        out = flexible_attention(query, keys, values, scaling)
        if out is not None:
            return out
    rows, heads, q, _ = query.shape
    kv_heads, length = keys.shape[1:3]
    grouped = query.unflatten(1, (kv_heads, -1)).float()  # [rows, kv, group, q, head_dim]
    keys, values = keys.float()[:, :, None], values.float()[:, :, None]
    if seen is None and q > 1:
        seen = torch.ones(q, length, dtype=torch.bool, device=query.device).tril(length - q)
    if seen is not None:
        seen = seen.expand(rows, heads, q, length).unflatten(1, (kv_heads, -1))
    outputs = []
    step = max(MOST_WEIGHTS // (rows * heads * length), 1)
    for at in range(0, q, step):
        logits = (grouped[:, :, :, at : at + step] @ keys.mT).mul_(scaling.scaling)
        capped_(logits, scaling)
        if bias is not None:
            logits += bias.float()[:, None, None]
        if seen is not None:
            logits.masked_fill_(~seen[:, :, :, at : at + step], float("-inf"))
        parts = [weights(row, scaling) for row in logits]  # sinks belong to the heads of one row
        outputs.append(torch.stack(parts) @ values)
    return torch.cat(outputs, dim=3).flatten(1, 2).to(query.dtype)


def sliding_attention(query: Tensor, keys: Tensor, values: Tensor, scaling: Scaling, window: int) -> Tensor:
    """`dense_attention` in which each query sees its own token and the window - 1 tokens before it.

    query [1, num_attention_heads, q, head_dim] of the last q tokens of keys, values [1, num_key_value_heads, len,
    head_dim]. Computed in tiles of queries, so that time and memory depend on the window.
    """
    q, length = query.shape[2], keys.shape[2]
    if length <= window:
        return dense_attention(query, keys, values, scaling)
    if isinstance(scaling, Softmax) and flexible(query):
        out = flexible_attention(query, keys, values, scaling, window)
        if out is not None:
            return out
    outputs = []
    for start in range(0, q, TILE):
        tile = query[:, :, start : start + TILE]
        end = length - q + start + tile.shape[2]
        first = max(end - tile.shape[2] - window + 1, 0)
        outputs.append(_banded(tile, keys[:, :, first:end], values[:, :, first:end], scaling, window))
    return outputs[0] if len(outputs) == 1 else torch.cat(outputs, dim=2)


def _banded(query: Tensor, keys: Tensor, values: Tensor, scaling: Scaling, window: int) -> Tensor:
    """Attention of the last q tokens of `keys`, with a mask of q × len elements if q > 1."""
    q, length = query.shape[2], keys.shape[2]
    if q == 1 or length <= window:
        return dense_attention(query, keys, values, scaling)
    seen = torch.ones(q, length, dtype=torch.bool, device=query.device).tril(length - q).triu(length - q - window + 1)
    if isinstance(scaling, Softmax):
        return bent_attention(query, keys, values, scaling, seen)
    return sdpa(query, keys, values, scaling, seen)


def lower_right(q: int, length: int, device: torch.device) -> Tensor:
    """The causal mask of the last q of `length` tokens; on a GPU without q × length elements, for flash kernels."""
    if device.type == "cuda":
        return causal_lower_right(q, length)
    return torch.ones(q, length, dtype=torch.bool, device=device).tril(length - q)


class Attention(NamedTuple):
    probabilities: Tensor  # float32 [.., group, t, len]
    lse: Tensor  # float32 [.., group, t], the log-sum-exps of the logits


def causal_probabilities(queries: Tensor, keys: Tensor, start: int, scaling: Scaling) -> Attention:
    """Float32 attention of a tile of queries.

    queries [group, t, head_dim] at positions start … start+t-1 and keys [len, head_dim] at 0 … len-1, of one KV head;
    for several KV heads both have a further first dimension. Returns probabilities [group, t, len] and log-sum-exps of
    the logits [group, t], with the same first dimension.
    """
    logits = grouped_logits(queries, keys, scaling)  # [.., group, t, len]
    t, length = logits.shape[-2:]
    if length > start + 1:
        positions = torch.arange(start, start + t, device=keys.device)
        future = torch.arange(length, device=keys.device) > positions[:, None]  # [t, len]
        logits.masked_fill_(future, float("-inf"))
    lse = log_sum(logits, scaling)
    return Attention(logits.sub_(lse[..., None]).exp_(), lse)


def grouped_logits(queries: Tensor, keys: Tensor, scaling: Scaling) -> Tensor:
    """Float32 logits [.., group, t, len] of queries [.., group, t, head_dim] with keys [.., len, head_dim], with the
    model's soft cap."""
    if keys.dim() == 2:
        return capped_((queries.float() @ keys.float().mT).mul_(plain(scaling)), scaling)
    rows = queries.float().flatten(-3, -2)
    return capped_((rows @ keys.float().mT).mul_(plain(scaling)), scaling).unflatten(-2, queries.shape[-3:-1])


def window_attention(queries: Tensor, keys: Tensor, scaling: Scaling) -> Tensor:
    """Attention of the prompt's last w queries over all its keys, float32 [num_attention_heads, w, n].

    queries [num_attention_heads, w, head_dim], keys [num_key_value_heads, n, head_dim], both after RoPE.
    """
    grouped = queries.unflatten(0, (keys.shape[0], -1))  # [kv, group, w, head_dim]
    return causal_probabilities(grouped, keys, keys.shape[1] - queries.shape[1], scaling).probabilities.flatten(0, 1)
