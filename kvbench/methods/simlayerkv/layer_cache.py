"""A layer cache that is compressed at the first decoded token, once all layers have a score."""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.cache.dense import DenseLayer
from kvbench.cache.parts import LayerOfParts
from kvbench.methods.selection import Selection
from kvbench.ops.softmax import Scaling
from kvbench.prefill import LayerState

# Makes a layer's cache from its prefill state.
Store = Callable[[LayerState], LayerCache]


class FirstDecodeDecision:
    """Collects the score of each of `num_layers` layers at the first decoded token, then compresses all of them.

    measure(queries [num_attention_heads, 1, head_dim], keys [num_key_value_heads, n + 1, head_dim], scaling) returns
    a layer's score; decide(scores) returns the `Store` of each layer's prompt.
    """

    def __init__(
        self,
        num_layers: int,
        measure: Callable[[Tensor, Tensor, Scaling], Tensor],
        decide: Callable[[list[float]], Sequence[Store]],
    ):
        self.num_layers, self.measure, self.decide = num_layers, measure, decide
        self.scored: list[tuple[FirstDecodeLayer, Tensor]] = []

    def add(self, layer: "FirstDecodeLayer", score: Tensor) -> None:
        """Take one layer's score; the last layer's score triggers the decision."""
        self.scored.append((layer, score))
        if len(self.scored) < self.num_layers:
            return
        # one synchronisation for all layers, which may lie on different devices
        scores = torch.stack([score.cpu() for _, score in self.scored]).tolist()
        for (scored, _), store in zip(self.scored, self.decide(scores), strict=True):
            scored.compress(store)


class FirstDecodeLayer(LayerOfParts):
    """Full keys and values until the first decoded token has attended; then the cache that a `Store` makes.

    The first decoded token attends to the whole prompt in every layer, so compression takes effect at the second.
    The store gets only the prompt; the first decoded token is appended to the cache that it makes.
    """

    def __init__(self, layer: LayerState, decision: FirstDecodeDecision) -> None:
        kept = Selection.everything(layer).kept(layer)
        super().__init__([DenseLayer(layer.keys, layer.values, layer.n, kept)], layer.n, kept)
        self.prompt = layer.n
        fields = ("scaling", "num_attention_heads", "rope", "index", "num_layers", "marks")
        self.state_fields = {name: getattr(layer, name) for name in fields}
        self.decision: FirstDecodeDecision | None = decision  # None from the first decoded token on
        self.score: Tensor | None = None  # of the first decoded token, until every reader has attended

    @property
    def inner(self) -> LayerCache:
        (cache,) = self.parts
        return cache

    def append(self, keys: Tensor, values: Tensor) -> None:
        self.inner.take(keys, values)

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        out = self.inner.attend(query, scaling)
        if self.decision is not None:
            self.score = self.decision.measure(query[0], self.inner.k.view[0], scaling)
            if not self.unread:
                self._decide()
        return out

    def reread(self, query: Tensor, scaling: Scaling) -> Tensor:
        out = self.inner.reread(query, scaling)
        if self.was_read():
            self._decide()
        return out

    def _decide(self) -> None:
        if self.decision is not None and self.score is not None:
            decision, score = self.decision, self.score
            self.decision = self.score = None
            decision.add(self, score)

    def compress(self, store: Store) -> None:
        """Replace the full cache by the cache that `store` makes of the prompt."""
        keys, values = self.inner.k.view, self.inner.v.view  # [1, num_key_value_heads, n + 1, head_dim]
        # copies: the store may keep its arguments, and the buffer behind the view has slack
        prompt = [x[0, :, : self.prompt].clone() for x in (keys, values)]
        self.parts = [store(LayerState(*prompt, **self.state_fields))]
        self.kept, self.late_bytes = self.inner.kept, self.inner.nbytes
        self.late_bytes_16 = self.inner.bytes_in_16_bits(keys.element_size())
        self.inner.take(keys[:, :, self.prompt :], values[:, :, self.prompt :])
