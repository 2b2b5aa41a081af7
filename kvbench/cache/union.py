"""Query-head selection without copies: a token kept by any query head of a group is stored once."""

import torch
from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.cache.packed import Packed
from kvbench.cache.ragged import RaggedLayer
from kvbench.cache.reserve_ratio import Kept


class UnionLayer(RaggedLayer):
    """Per KV head the union of its query heads' kept tokens, and one bit per query head and prompt token.

    The attention output equals that of the unfolded cache; each token of the union is stored once.
    """

    takes_blocks = False

    def __init__(self, keys: Tensor, values: Tensor, indices: Tensor, seen: int, kept: Kept):
        """keys, values [num_key_value_heads, n, head_dim]; indices [num_attention_heads, k] kept tokens."""
        LayerCache.__init__(self, seen, kept)
        heads, n, _ = keys.shape
        wanted = torch.zeros(indices.shape[0], n, dtype=torch.bool, device=keys.device)
        wanted = wanted.scatter_(1, indices, True).unflatten(0, (heads, -1))  # [kv, group, n]
        self.packed = Packed.chosen(keys, values, wanted.any(dim=1), wanted)
