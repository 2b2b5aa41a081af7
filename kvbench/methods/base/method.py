"""The contract of a method."""

from abc import ABC, abstractmethod
from typing import cast

from kvbench.cache.base import LayerCache
from kvbench.cache.reserve_ratio import ReserveRatio
from kvbench.errors import UserError
from kvbench.methods.base.layer_stream import LayerByLayer, LayerStream
from kvbench.methods.facts import Stated
from kvbench.methods.storage.base import KeptLayer, Storage
from kvbench.prefill import FullPrefill, LayerState, Needs, PrefillPlan, PrefillState

# The tokens that a ratio counts: the prompt's, these and the answer's, or those so far.
RATIOS_OF = ("prompt", "total", "seen")


def as_given(budget: float) -> int:
    """A setting's budget with the type that methods declare: whole tokens, or ratio·n if a method `takes_fractions`."""
    return cast(int, budget)


class Method(Stated, ABC):
    """A function of the prefill state; it never sees a model, a tokenizer or a benchmark.

    `needs` is read before the prefill, so that one pass serves every setting of a run.
    """

    needs: Needs = Needs()
    takes_budget: bool = True  # FullKV does not
    takes_fractions: bool = False  # a ratio arrives as ratio·n, not rounded down to whole tokens
    own_positions: bool = False  # decoding goes on from positions of its own (keys turned to those of kept tokens)
    ratio_of: str = "prompt"  # one of RATIOS_OF
    compress_at: str = "prefill_end"
    full_cache_tokens: int = 1  # generated tokens that saw the full cache: the first comes from prefill

    @property
    def never_full(self) -> str:
        """Why a budget of the whole prompt does not give FullKV's tokens: it may take none; "" if it does."""
        return "" if self.takes_budget else "what it keeps is fixed"

    @property
    def minimum_budget(self) -> int:
        """The smallest budget that leaves a choice: the tokens that are always kept, and one more."""
        return 1

    @property
    def layerwise(self) -> bool:
        """Whether a layer's outcome depends on nothing but this layer's state: `compress_layer` of each layer makes the
        caches of `compress`. It is False for a method that looks at several layers; `kvbench check` tests the claim."""
        return True

    @property
    def streams(self) -> bool:
        """Whether `memory=stream` can run it: without the whole keys and values of more than one layer at a time.

        `layerwise` methods can, unless a layer's state needs the caches of all layers; others override `layer_stream`.
        """
        return self.layerwise and not self.needs.reconstructions

    @property
    def batches(self) -> bool:
        """Whether its layer caches may decode in a batch (`LayerCache.batches`), known before there are any.

        This decides only an order: settings that cannot batch are compressed and decoded first, while no batch is held.
        """
        return self._storage is not None and self._storage.batches

    @property
    def divisible(self) -> bool:
        """Whether another method may set the budget of each layer: a layer with a budget of b tokens holds about b."""
        return self.takes_budget and self.layerwise and self.compress_at != "in_prefill"

    @property
    def fills_budget(self) -> bool:
        """Whether every layer keeps all tokens of its budget, so that fewer in a record are an error of the record."""
        return False

    def title(self, name: str) -> str:
        """The method's name in tables, for a configuration called `name`."""
        return name

    def floor(self, n: int, num_layers: int) -> int:
        """The smallest budget of a prompt of n tokens; a smaller budget is raised to it."""
        return self.minimum_budget

    def least(self, layer: LayerState, num_layers: int) -> int:
        """The tokens per head that this layer keeps of its prompt whatever the budget, or the smallest budget."""
        return self.floor(layer.n, num_layers)

    def missed(self, ratio: ReserveRatio, target: float) -> bool:
        """Whether a method that searches for the ratio `target` missed it; False for methods that do not search."""
        return False

    def least_share(self, element_bytes: int, layer: KeptLayer | None = None) -> float:
        """`Storage.least_share` of the method's storage. A method without a storage returns 1 if it holds unchanged
        rows, and 0 if nothing is known beforehand."""
        return 0.0 if self._storage is None else self._storage.least_share(element_bytes, layer)

    @property
    def counts_groups(self) -> bool:
        """Whether r1 counts a token once if any query head of its group keeps it, under the budget of one head."""
        return False

    @property
    def overspends(self) -> str:
        return "the query heads of a group keep different tokens" if self.counts_groups else ""

    @property
    def unfolds(self) -> bool:
        """Whether each query head stores a copy of its tokens if query heads select tokens separately."""
        return self._storage is None or self._storage.unfolds

    @property
    def _storage(self) -> Storage | None:
        """The field `storage`, which many methods have."""
        return getattr(self, "storage", None)

    def plan(self, n: int, num_layers: int, budget: int | float) -> PrefillPlan:
        """The forward pass to run over a prompt of n tokens. Settings with equal plans share one pass."""
        return FullPrefill()

    def compress(self, state: PrefillState, budget: int) -> list[LayerCache]:
        """One layer cache per layer, holding about `budget` tokens per head on average over the layers.

        With budget >= state.n the caches behave as FullKV, bit for bit. `state` is shared: do not write it.
        Override this, and `layerwise`, only where a layer's outcome depends on other layers.
        """
        count = len(state.layers)
        return [self.layer_cache(layer, index, count, budget) for index, layer in enumerate(state.layers)]

    def layer_stream(self, num_layers: int, budget: int) -> LayerStream:
        """Compresses the layers of one prompt as they arrive, into the same caches as `compress`."""
        return LayerByLayer(lambda layer, index: self.layer_cache(layer, index, num_layers, budget))

    def layer_cache(self, layer: LayerState, index: int, num_layers: int, budget: int) -> LayerCache:
        """`compress_layer`. Raises UserError unless it returns a layer cache."""
        cache: object = self.compress_layer(layer, index, num_layers, budget)
        if isinstance(cache, LayerCache):
            return cache
        raise UserError(
            f"{type(self).__name__}.compress_layer returned an object of the type {type(cache).__name__}: it must be a "
            "LayerCache, such as DenseLayer"
        )

    @abstractmethod
    def compress_layer(self, layer: LayerState, index: int, num_layers: int, budget: int) -> LayerCache:
        """The cache of layer `index` of `num_layers`, from its own prefill state alone."""
