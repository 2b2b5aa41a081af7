"""What released forward functions need around them: an attention module without weights, and a plain cache."""

from types import SimpleNamespace

import torch
from torch import Tensor
from transformers import Cache


def attention_module(queries: Tensor, keys: Tensor, values: Tensor, **attributes) -> SimpleNamespace:
    """A `self` whose projections give these heads [heads, len, head_dim] whatever the hidden states are."""

    def projection(heads: Tensor):
        return lambda hidden: heads.transpose(0, 1).flatten(1)[None]  # [1, len, heads · head_dim]

    heads, _, head_dim = queries.shape
    return SimpleNamespace(
        q_proj=projection(queries),
        k_proj=projection(keys),
        v_proj=projection(values),
        o_proj=lambda output: output,
        num_heads=heads,
        num_key_value_heads=len(keys),
        num_key_value_groups=heads // len(keys),
        head_dim=head_dim,
        hidden_size=heads * head_dim,
        attention_dropout=0.0,
        training=False,
        rotary_emb=lambda *args, **kwargs: (None, None),
        config=SimpleNamespace(pretraining_tp=1),
        **attributes,
    )


class ListCache(Cache):
    """Keys and values in lists, as the Cache of transformers 4 kept them."""

    def __init__(self):
        self.key_cache: list[Tensor] = []
        self.value_cache: list[Tensor] = []

    @property
    def seen_tokens(self) -> int:
        return self.key_cache[0].shape[-2]

    def get_seq_length(self, layer_idx: int = 0) -> int:
        return self.key_cache[layer_idx].shape[-2] if self.key_cache else 0

    def update(self, key_states, value_states, layer_idx, cache_kwargs=None):
        if layer_idx == len(self.key_cache):
            self.key_cache.append(key_states)
            self.value_cache.append(value_states)
        else:
            self.key_cache[layer_idx] = torch.cat([self.key_cache[layer_idx], key_states], dim=-2)
            self.value_cache[layer_idx] = torch.cat([self.value_cache[layer_idx], value_states], dim=-2)
        return self.key_cache[layer_idx], self.value_cache[layer_idx]


def digits(positions: Tensor, width: int, dtype: torch.dtype) -> Tensor:
    """Positions [len] as vectors [len, width] that a 16 bit dtype holds exactly (below 16,384)."""
    return torch.stack([positions // 64, positions % 64], dim=-1).repeat(1, width // 2).to(dtype)


def undigits(vectors: Tensor) -> Tensor:
    """The inverse of `digits`: positions [..., len] of vectors [..., len, width]."""
    return (vectors[..., 0].float() * 64 + vectors[..., 1].float()).long()
