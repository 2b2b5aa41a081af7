"""TOVA (Oren et al. 2024, arXiv 2401.06104): the tokens with the most attention of the current query."""

from dataclasses import field
from typing import Literal

import torch
from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.cache.slots import SlotLayer
from kvbench.errors import UserError
from kvbench.methods.eviction.eviction import Eviction
from kvbench.methods.scoring.base import Scoring
from kvbench.methods.storage.dense import Dense
from kvbench.ops.softmax import Scaling
from kvbench.prefill import LayerState, Needs
from kvbench.utils.checked import checked


@checked
class LastQuery(Scoring):
    """Attention of the prompt's last token to all tokens, itself included; no token is protected (Oren et al. 2024)."""

    needs = Needs(window=1)

    def votes(self, layer: LayerState) -> Tensor:
        return layer.window_votes(1)


@checked
class TOVA(Eviction):
    """Keep the tokens with the most attention of the last query, averaged over all heads: one set for a layer.

    Source: Oren et al. 2024, arXiv 2401.06104.

    decode   grow: evict once, after prefill, and let the cache grow.
             evict: the released code. After each new token, the stored token with the least attention of the current
             query is dropped; this may be the new token.
    """

    scoring: Scoring = field(default_factory=LastQuery)
    granularity: Literal["kv_head", "query_head", "layer"] = "layer"
    decode: Literal["grow", "evict"] = "grow"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decode == "evict" and self.decode_compression is not None:
            raise UserError("decode=evict already drops a token at every step: leave decode_compression out")
        if self.decode == "evict" and (self.storage != Dense() or self.granularity != "layer"):
            raise UserError(
                "decode=evict drops one token of all heads from a layer's store: it needs dense, unfolded storage and "
                f"granularity=layer, not {type(self.storage).__name__} and {self.granularity}"
            )

    def compress_layer(self, layer: LayerState, index: int, num_layers: int, budget: int) -> LayerCache:
        if self.decode == "grow":
            return super().compress_layer(layer, index, num_layers, budget)
        selection = self.select(layer, index, num_layers, budget)
        positions = torch.arange(layer.n, device=layer.keys.device)[None]
        if selection.indices is not None:
            positions = selection.indices[:1]
        limit = budget if selection.indices is None else selection.nominal  # this layer's budget; a pyramid's differ
        kept = selection.kept(layer)
        return CurrentQueryLayer(selection.of(layer.keys), selection.of(layer.values), positions, layer.n, kept, limit)


class CurrentQueryLayer(SlotLayer):
    """At most `budget` tokens, the same in all heads. Each step drops the token with the least attention."""

    def ranks(self, query: Tensor, scaling: Scaling) -> Tensor:
        return self.attention(query, scaling).mean(dim=(0, 1))
