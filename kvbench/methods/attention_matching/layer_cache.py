"""Keys and values of each head with a bias for each prompt token, which attention adds to its logit."""

import torch
import torch.nn.functional as F
from torch import Tensor

from kvbench.cache.dense import DenseLayer
from kvbench.cache.reserve_ratio import Kept
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
    return out.reshape(*query.shape[:-1], -1)


class BiasedLayer(DenseLayer):
    """A `DenseLayer` with a bias for each prompt token; decoded tokens have no bias.

    In a batch each sequence attends by itself: a pack has no place for biases.
    """

    def __init__(self, keys: Tensor, values: Tensor, bias: Tensor, seen: int, kept: Kept):
        """keys, values [heads, len, head_dim] and bias [heads, len]; all three are taken over, not copied."""
        super().__init__(keys, values, seen, kept)
        self.bias = bias

    def tensors(self) -> list[Tensor]:
        return [*super().tensors(), self.bias]

    @property
    def filled_bytes(self) -> int:
        return int(super().filled_bytes + self.bias.nbytes)

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        bias = F.pad(self.bias, (0, self.k.length - self.bias.shape[1]))
        return biased_attention(query, self.k.view, self.v.view, bias, scaling)
