"""Ragged caches: each KV head keeps different tokens and a different number of them."""

from collections.abc import Sequence

import torch
from torch import Tensor

from kvbench.cache.base import Growing, LayerCache
from kvbench.cache.reserve_ratio import Kept
from kvbench.ops.attention import dense_attention


class RaggedLayer(LayerCache):
    """Keys and values [len, head_dim] for each KV head, after RoPE."""

    takes_blocks = True
    batches = True

    def __init__(self, heads: Sequence[tuple[Tensor, Tensor]], seen: int, kept: Kept):
        super().__init__(seen, kept)
        self.heads = [(Growing(keys[None, None]), Growing(values[None, None])) for keys, values in heads]

    def tensors(self) -> list[Tensor]:
        return [x.buffer for head in self.heads for x in head]

    def append(self, keys: Tensor, values: Tensor) -> None:
        for (k, v), key, value in zip(self.heads, keys.split(1, dim=1), values.split(1, dim=1), strict=True):
            k.append(key)
            v.append(value)

    def attend(self, query: Tensor, scaling: float) -> Tensor:
        groups = query.chunk(len(self.heads), dim=1)  # [1, group, q, head_dim]
        return torch.cat(
            [dense_attention(q, k.view, v.view, scaling) for q, (k, v) in zip(groups, self.heads, strict=True)], dim=1
        )
