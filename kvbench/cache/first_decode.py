"""A layer that is FullKV for the first decoded token, and is compressed once that was answered."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.cache.dense import DenseLayer
from kvbench.prefill import LayerState
from kvbench.ratio import Kept
from kvbench.where import where

Store = Callable[[LayerState], LayerCache]


class Verdict:
    """Hears one score from each of `count` layers, then has every one of them stored as it deserves.

    measure(queries [num_attention_heads, 1, head_dim], keys [num_key_value_heads, n + 1, head_dim], scaling)
    scores a layer on the first decoded token; decide(scores) says how each layer's prompt is to be stored.
    """

    def __init__(
        self,
        count: int,
        measure: Callable[[Tensor, Tensor, float], Tensor],
        decide: Callable[[list[float]], Sequence[Store]],
    ):
        self.count, self.measure, self.decide = count, measure, decide
        self.heard: list[tuple[FirstDecodeLayer, Tensor]] = []

    def hear(self, layer: "FirstDecodeLayer", score: Tensor) -> None:
        self.heard.append((layer, score))
        if len(self.heard) < self.count:
            return
        # one look at the device for all layers; on several devices the scores are brought together first
        scores = torch.stack([score.cpu() for _, score in self.heard]).tolist()
        for (heard, _), store in zip(self.heard, self.decide(scores), strict=True):
            heard.settle(store)


class FirstDecodeLayer(LayerCache):
    """Full keys and values until the verdict; afterwards the cache that the verdict's store makes of the prompt.

    The first decoded token sees everything, and so does its own layer's output: what is stored changes for
    the second. The prompt alone is handed to the store, the token follows as any later one does.
    """

    def __init__(self, layer: LayerState, verdict: Verdict):
        everything = Kept.tokens(layer.n, layer.n, layer.n, layer.num_key_value_heads, where=where(None, layer.n))
        super().__init__(layer.n, everything)
        self.inner: LayerCache = DenseLayer(layer.keys, layer.values, layer.n, self.kept)
        self.prompt = layer.n
        self.form = (layer.scaling, layer.num_attention_heads, layer.rope)
        self.verdict: Verdict | None = verdict

    def tensors(self) -> list[Tensor]:
        return self.inner.tensors()

    def append(self, keys: Tensor, values: Tensor) -> None:
        self.inner.update(keys, values)

    def attend(self, query: Tensor, scaling: float) -> Tensor:
        out = self.inner.attend(query, scaling)
        if self.verdict is not None:
            verdict, self.verdict = self.verdict, None
            verdict.hear(self, verdict.measure(query[0], self.inner.k.view[0], scaling))
        return out

    def settle(self, store: Store) -> None:
        """Let `store` hold the prompt, and go on with what it made."""
        keys, values = self.inner.k.view, self.inner.v.view  # [1, num_key_value_heads, n + 1, head_dim]
        # copies: the store may keep what it is given, and the buffer behind the view has slack
        prompt = [x[0, :, : self.prompt].clone() for x in (keys, values)]
        self.inner = store(LayerState(*prompt, *self.form))
        self.kept, self.late_bytes = self.inner.kept, self.inner.nbytes
        self.inner.update(keys[:, :, self.prompt :], values[:, :, self.prompt :])
