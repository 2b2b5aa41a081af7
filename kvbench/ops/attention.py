"""Attention and sums of attention weights, in tiles where the n × n weights would not fit in memory."""

import torch
import torch.nn.functional as F
from torch import Tensor

from kvbench.ops.sdpa import ungrouped

# Query rows per tile when n × n weights are summed: a constant, so memory stays O(n · heads).
TILE = 128


def dense_attention(query: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Tensor:
    """softmax(QKᵀ·scaling)V; causal when there is more than one query: the last query sees the last key.

    query [1, num_attention_heads, q, head_dim]; keys, values [1, heads, len, head_dim] with heads either
    num_key_value_heads or num_attention_heads. This is the call of transformers' own SDPA attention, so a full cache
    gives the bits of `model.generate`.
    """
    q, length = query.shape[2], keys.shape[2]
    mask = None
    if 1 < q < length:  # a block of tokens after those in the cache
        mask = torch.ones(q, length, dtype=torch.bool, device=query.device).tril(length - q)
    shape = query.shape
    if q > 1:
        query, keys, values = ungrouped(query, keys, values)
    out = F.scaled_dot_product_attention(
        query,
        keys,
        values,
        attn_mask=mask,
        scale=scaling,
        is_causal=q > 1 and mask is None,
        enable_gqa=keys.shape[1] != query.shape[1],
    )
    return out.reshape(shape)


def causal_probabilities(queries: Tensor, keys: Tensor, start: int, scaling: float) -> tuple[Tensor, Tensor]:
    """Float32 attention of a tile of queries over one KV head.

    queries [group, t, head_dim] at positions start … start+t-1; keys [len, head_dim] at 0 … len-1.
    Returns probabilities [group, t, len] and their log-sum-exp [group, t].
    """
    logits = queries.float() @ keys.float().T * scaling  # [group, t, len]
    positions = torch.arange(start, start + queries.shape[1], device=keys.device)
    future = torch.arange(keys.shape[0], device=keys.device) > positions[:, None]  # [t, len]
    logits.masked_fill_(future, float("-inf"))
    lse = logits.logsumexp(dim=-1)
    return logits.sub_(lse[..., None]).exp_(), lse


def window_attention(queries: Tensor, keys: Tensor, scaling: float) -> Tensor:
    """Attention of the prompt's last w queries over all its keys, float32 [num_attention_heads, w, n].

    queries [num_attention_heads, w, head_dim], keys [num_key_value_heads, n, head_dim], both after RoPE.
    """
    heads, w, _ = queries.shape
    grouped = queries.unflatten(0, (keys.shape[0], heads // keys.shape[0]))  # [kv, group, w, head_dim]
    start = keys.shape[1] - w
    return torch.cat([causal_probabilities(q, k, start, scaling)[0] for q, k in zip(grouped, keys, strict=True)])


def attention_mass(queries: Tensor, keys: Tensor, scaling: float, chosen: Tensor) -> Tensor:
    """Share of their attention that the last w queries give to the keys at positions `chosen` [k].

    exp(logsumexp over the chosen visible keys - logsumexp over all visible keys), float32 [num_attention_heads, w],
    which needs a flash kernel's log-sum-exp but no attention weights.
    queries [num_attention_heads, w, head_dim] are the last of n, keys [num_key_value_heads, n, head_dim].
    """
    start = keys.shape[1] - queries.shape[1]
    positions = torch.arange(start, keys.shape[1], device=keys.device)
    hidden = chosen > positions[:, None]  # [w, k]
    mass = []
    for rows, key in zip(queries.unflatten(0, (keys.shape[0], -1)), keys, strict=True):
        _, lse = causal_probabilities(rows, key, start, scaling)  # [group, w]
        logits = rows.float() @ key[chosen].float().T * scaling  # [group, w, k]
        mass.append((logits.masked_fill_(hidden, float("-inf")).logsumexp(dim=-1) - lse).exp_())
    return torch.cat(mass)


def column_sums(
    queries: Tensor, keys: Tensor, scaling: float, tile: int = TILE, first_causal: int = 0
) -> tuple[Tensor, Tensor]:
    """Total attention every key receives from all queries (H2O), and every query's log-sum-exp.

    queries [num_attention_heads, n, head_dim], keys [num_key_value_heads, n, head_dim], both after RoPE. Queries from
    position `first_causal` on attend to the keys up to their own position; those before it attend to all n keys.
    Returns float32 sums and log-sum-exp, each [num_attention_heads, n]. The sums of a head add up to n.
    Only `tile` query rows of one KV head exist at a time.
    """
    heads, n, _ = queries.shape
    group = heads // keys.shape[0]
    sums = torch.zeros(heads, n, device=keys.device)
    lse = torch.empty(heads, n, device=keys.device)
    for head, key in enumerate(keys):
        key = key.float()  # once per head, not once per tile
        rows = slice(head * group, (head + 1) * group)
        for start in range(0, first_causal, tile):
            end = min(start + tile, first_causal)
            probabilities, tile_lse = causal_probabilities(queries[rows, start:end], key, n, scaling)  # masks nothing
            sums[rows] += probabilities.sum(dim=1)
            lse[rows, start:end] = tile_lse
        for start in range(first_causal, n, tile):
            end = min(start + tile, n)
            probabilities, tile_lse = causal_probabilities(queries[rows, start:end], key[:end], start, scaling)
            sums[rows, :end] += probabilities.sum(dim=1)
            lse[rows, start:end] = tile_lse
    return sums, lse


def weighted_rows(queries: Tensor, keys: Tensor, scaling: float, weights: Tensor, tile: int = TILE) -> Tensor:
    """Attention of the last w queries, averaged over all heads and summed with one weight per query.

    queries [num_attention_heads, w, head_dim], keys [num_key_value_heads, n, head_dim], both after RoPE;
    weights [w]. Returns float32 [n]. Only `tile` query rows of one KV head exist at a time.
    """
    heads, w, _ = queries.shape
    group, n = heads // keys.shape[0], keys.shape[1]
    total = torch.zeros(n, device=keys.device)
    for head, key in enumerate(keys):
        key = key.float()  # once per head, not once per tile
        rows = queries[head * group : (head + 1) * group]
        for start in range(0, w, tile):
            end = min(start + tile, w)
            probabilities, _ = causal_probabilities(rows[:, start:end], key, n - w + start, scaling)
            total += torch.einsum("gtn,t->n", probabilities, weights[start:end])
    return total / heads
