"""Moments of the attention of a prompt's last queries."""

from typing import NamedTuple

import torch
from torch import Tensor

from kvbench.ops.attention import window_attention
from kvbench.ops.softmax import Scaling


class WindowMoments(NamedTuple):
    """Moments of the attention of each query head's last w queries to the keys.

    mean, variance   over the queries, float32 [num_attention_heads, n]; the sample variance, 0 for one query.
    entropy          entropy of the weights of the keys before the last w, which are not normalised again, summed over
                     these keys and the queries, float32 [num_attention_heads].
    """

    mean: Tensor
    variance: Tensor
    entropy: Tensor


def window_moments(queries: Tensor, keys: Tensor, scaling: Scaling) -> WindowMoments:
    """The moments for queries [num_attention_heads, w, head_dim] and keys [num_key_value_heads, n, head_dim].

    The weights of one layer exist at once: w · n · num_attention_heads in float32.
    """
    w, n = queries.shape[1], keys.shape[1]
    weights = window_attention(queries, keys, scaling)  # [num_attention_heads, w, n]
    variance, mean = torch.var_mean(weights, dim=1, correction=min(1, w - 1))
    return WindowMoments(mean, variance, torch.special.entr(weights[..., : n - w]).sum(dim=(1, 2)))
