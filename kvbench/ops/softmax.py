"""Attention weights from the products of queries and keys, in models that do more than scale the products.

Most models compute softmax(QKᵀ·scaling) and pass the number `scaling`. Gemma-2 limits large logits (a soft cap);
gpt-oss gives each head a learned sink: a logit that takes attention and has no value. Such a model passes a `Softmax`
instead of a number, so that code that expects a number fails instead of ignoring the cap or the sinks.
"""

from dataclasses import dataclass, replace

import torch
from torch import Tensor


@dataclass(frozen=True, eq=False)
class Softmax:
    """softmax over the logits cap·tanh(QKᵀ·scaling / cap) and the sink of each query head."""

    scaling: float
    softcap: float | None = None
    sinks: Tensor | None = None  # [query heads], a sink for each query head


Scaling = float | Softmax


def plain(scaling: Scaling) -> float:
    """The factor of the products of queries and keys."""
    return scaling.scaling if isinstance(scaling, Softmax) else scaling


def of_heads(scaling: Scaling, heads: slice | Tensor) -> Scaling:
    """`scaling` for some of the query heads."""
    if not isinstance(scaling, Softmax) or scaling.sinks is None:
        return scaling
    return replace(scaling, sinks=scaling.sinks[heads])


def of_kv_heads(scaling: Scaling, heads: Tensor, kv_heads: int) -> Scaling:
    """`scaling` for the query heads of some of `kv_heads` KV heads, in their order."""
    if not isinstance(scaling, Softmax) or scaling.sinks is None:
        return scaling
    return replace(scaling, sinks=scaling.sinks.unflatten(0, (kv_heads, -1))[heads].flatten())


def of_rows(scaling: Scaling, rows: int) -> Scaling:
    """`scaling` for the query heads of `rows` sequences, one after the other."""
    if rows == 1 or not isinstance(scaling, Softmax) or scaling.sinks is None:
        return scaling
    return replace(scaling, sinks=scaling.sinks.repeat(rows))


def capped_(logits: Tensor, scaling: Scaling) -> Tensor:
    """Apply the soft cap, if there is one, to logits in place; -inf stays."""
    if not isinstance(scaling, Softmax) or scaling.softcap is None:
        return logits
    hidden = logits.isneginf()
    return logits.div_(scaling.softcap).tanh_().mul_(scaling.softcap).masked_fill_(hidden, float("-inf"))


def log_sum(logits: Tensor, scaling: Scaling) -> Tensor:
    """Log-sum-exp over the last dimension and the sinks; logits [query heads, …, len], or heads as [kv, group, …]."""
    lse = logits.logsumexp(dim=-1)
    if not isinstance(scaling, Softmax) or scaling.sinks is None:
        return lse
    return torch.logaddexp(lse, _like(scaling.sinks.to(logits), lse))


def weights(logits: Tensor, scaling: Scaling) -> Tensor:
    """The attention weights of capped logits in a shape that `log_sum` takes; with sinks they sum to less than 1."""
    if not isinstance(scaling, Softmax) or scaling.sinks is None:
        return logits.softmax(dim=-1)
    return (logits - log_sum(logits, scaling)[..., None]).exp()


def _like(sinks: Tensor, lse: Tensor) -> Tensor:
    """Sinks [query heads] in the shape of lse's first dimensions that hold the heads, and 1 in all others."""
    count, dims = 1, 0
    while dims < lse.dim() and count < len(sinks):
        count *= lse.shape[dims]
        dims += 1
    if count != len(sinks):
        raise ValueError(f"sinks of {len(sinks)} heads for weights {tuple(lse.shape)}")
    return sinks.view(*lse.shape[:dims], *[1] * (lse.dim() - dims))
