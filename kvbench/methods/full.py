"""FullKV: the baseline that evicts nothing."""

from dataclasses import field

from kvbench.cache.base import LayerCache
from kvbench.cache.sliding_window import WindowLayer
from kvbench.methods.base.method import Method
from kvbench.methods.selection import Selection
from kvbench.methods.storage.base import Storage, refuse_union
from kvbench.methods.storage.dense import Dense
from kvbench.prefill import LayerState, PrefillState
from kvbench.utils.checked import checked


@checked
class FullKV(Method):
    """Keep every token. With dense storage, greedy decoding returns the tokens of `model.generate`.

    storage   how the tokens are held; with Kivi this is quantisation without eviction.
    """

    storage: Storage = field(default_factory=Dense)
    takes_budget = False
    never_full = ""

    def __post_init__(self) -> None:
        refuse_union(self.storage, type(self).__name__)
        self.needs = self.storage.needs

    @property
    def layerwise(self) -> bool:
        return not self.storage.joint

    def compress(self, state: PrefillState, budget: int) -> list[LayerCache]:
        if not self.storage.joint:
            return super().compress(state, budget)
        layers = [layer.stored for layer in state.layers]
        return self.storage.store_all(layers, [Selection.everything(layer) for layer in layers])

    def compress_layer(self, layer: LayerState, index: int, num_layers: int, budget: int) -> LayerCache:
        return self._within_window(layer) or self.storage.store(layer.stored, Selection.everything(layer))

    def _within_window(self, layer: LayerState) -> LayerCache | None:
        """The cache of a layer whose sliding window is longer than the prompt: decoding fills the window first."""
        if layer.window is None or type(self.storage) is not Dense:
            return None
        kept = Selection.everything(layer).kept(layer)
        return WindowLayer.from_tokens(layer.keys, layer.values, layer.window, layer.n, kept)
