"""FullKV: the baseline that evicts nothing."""

from dataclasses import field

from kvbench.cache.base import LayerCache
from kvbench.methods.base import Method
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

    def __post_init__(self):
        refuse_union(self.storage, type(self).__name__)
        self.needs = self.storage.needs

    @property
    def layerwise(self) -> bool:
        return not self.storage.joint

    def compress(self, state: PrefillState, budget: int) -> list[LayerCache]:
        return self.storage.store_all(state.layers, [Selection.everything(layer) for layer in state.layers])

    def compress_layer(self, layer: LayerState, index: int, num_layers: int, budget: int) -> LayerCache:
        return self.storage.store(layer, Selection.everything(layer))
