"""Query-head selection without copies: a token kept by any query head of a group is stored once."""

import torch
import torch.nn.functional as F
from torch import Tensor

from kvbench.cache.base import Growing, LayerCache
from kvbench.cache.reserve_ratio import Kept
from kvbench.ops.bits import pack_bits, unpack_bits


class UnionLayer(LayerCache):
    """Per KV head the union of its query heads' kept tokens, and one bit per query head and prompt token.

    The attention output equals that of the unfolded cache; each token of the union is stored once.
    """

    batches = True

    def __init__(self, keys: Tensor, values: Tensor, indices: Tensor, seen: int, kept: Kept):
        """keys, values [num_key_value_heads, n, head_dim]; indices [num_attention_heads, k] kept tokens."""
        super().__init__(seen, kept)
        heads, n, _ = keys.shape
        wanted = torch.zeros(indices.shape[0], n, dtype=torch.bool, device=keys.device)
        wanted.scatter_(1, indices, True)
        wanted = wanted.unflatten(0, (heads, -1))  # [kv, group, n]
        tokens = [w.any(dim=0).nonzero().squeeze(1) for w in wanted]
        self.prompt = [len(t) for t in tokens]
        self.bits = [pack_bits(w[:, t]) for w, t in zip(wanted, tokens, strict=True)]
        self.k = [Growing(x[t]) for x, t in zip(keys, tokens, strict=True)]
        self.v = [Growing(x[t]) for x, t in zip(values, tokens, strict=True)]

    def tensors(self) -> list[Tensor]:
        return [g.buffer for g in self.k + self.v] + self.bits

    def append(self, keys: Tensor, values: Tensor) -> None:
        for store, new in zip(self.k + self.v, [*keys[0], *values[0]], strict=True):
            store.append(new)

    def attend(self, query: Tensor, scaling: float) -> Tensor:
        groups = query[0, :, 0].unflatten(0, (len(self.k), -1))  # [kv, group, head_dim]
        out = [self._attend_head(head, q, scaling) for head, q in enumerate(groups)]
        return torch.cat(out)[None, :, None]  # [1, num_attention_heads, 1, head_dim]

    def _attend_head(self, head: int, queries: Tensor, scaling: float) -> Tensor:
        """Attention [group, head_dim] of a group's queries [group, head_dim], each to the tokens that its head kept."""
        keys, values = self.k[head].view, self.v[head].view
        mask = unpack_bits(self.bits[head], self.prompt[head])
        mask = F.pad(mask, (0, keys.shape[0] - mask.shape[1]), value=True)  # decoded tokens are visible to all
        return F.scaled_dot_product_attention(
            queries[None], keys[None], values[None], attn_mask=mask[None], scale=scaling
        )[0]
