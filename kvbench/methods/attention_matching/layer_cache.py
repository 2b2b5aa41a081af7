"""Keys and values of which each head's prompt tokens have a bias that attention adds to their logits."""

import torch.nn.functional as F
from torch import Tensor

from kvbench.cache.dense import DenseLayer
from kvbench.cache.reserve_ratio import Kept
from kvbench.methods.attention_matching.biased_attention import biased_attention
from kvbench.ops.softmax import Scaling


class BiasedLayer(DenseLayer):
    """A `DenseLayer` and a bias of each of its prompt tokens; decoded tokens have none.

    In a batch it attends alone: packs have no bias.
    """

    def __init__(self, keys: Tensor, values: Tensor, bias: Tensor, seen: int, kept: Kept):
        """keys, values [heads, len, head_dim], bias [heads, len], which it takes over."""
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
