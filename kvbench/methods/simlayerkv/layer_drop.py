"""Controls of SimLayerKV's figures 3 and 6 (arXiv 2410.13846): other layers than the lazy layers are trimmed."""

import math
import random
from dataclasses import field

from kvbench.cache.base import LayerCache
from kvbench.errors import UserError
from kvbench.methods.base.method import Method
from kvbench.methods.facts import values
from kvbench.methods.selection import Selection
from kvbench.methods.simlayerkv.method import SimLayerKV, layers_to_trim, trimmed
from kvbench.methods.storage.base import Storage, refuse_joint, refuse_union
from kvbench.methods.storage.dense import Dense
from kvbench.prefill import LayerState
from kvbench.utils.checked import Fraction, NonNegative, Positive, checked


@checked
class RandomLayers(Method):
    """Figure 6: trim random layers to the first `sinks` and last `window` tokens.

    start, stop   range of layers to draw from, as fractions of the depth: layer l of m with floor(start·m) <= l <
                  floor(stop·m). At m = 32, 0 to 0.5 is the figure's [0, 16) and 0.5 to 1 its [16, 32).
    layers        number of layers to trim. null: the smallest number that brings the mean length over all layers to at
                  most the ratio or budget, as in SimLayerKV with delta=null, so both trim equally many layers at the
                  same ratio. If trimming the whole range is not enough, r is larger.
    seed          determines the order in which the range is drawn, the same for every prompt. A larger `layers` with
                  the same seed trims the same layers and further ones.
    """

    short = values(window=24)

    start: Fraction = 0.0
    stop: Fraction = 1.0
    layers: NonNegative | None = None
    seed: NonNegative = 0
    sinks: NonNegative = 4
    window: Positive = 1024
    storage: Storage = field(default_factory=Dense)

    divisible = False  # the budget determines how many layers are trimmed

    def __post_init__(self) -> None:
        if not self.start < self.stop:
            raise UserError(f"start={self.start:g} must be below stop={self.stop:g}: both are fractions of the depth")
        refuse_joint(self.storage, "RandomLayers")
        refuse_union(self.storage, "RandomLayers")
        self.needs = self.storage.needs
        self.takes_budget = self.layers is None

    def floor(self, n: int, num_layers: int) -> int:
        short = min(n, self.sinks + self.window)
        dropped = len(self.drawn_from(num_layers))
        return math.ceil((dropped * short + (num_layers - dropped) * n) / num_layers)

    def compress_layer(self, layer: LayerState, index: int, num_layers: int, budget: int) -> LayerCache:
        kept = Selection.everything(layer)
        if index in self.dropped(layer.n, num_layers, budget):
            kept = trimmed(layer, self.sinks, self.window)
        return self.storage.store(layer.stored, kept)

    def dropped(self, n: int, num_layers: int, budget: int) -> list[int]:
        """The layers to trim, in the order drawn. Raises UserError if the range has fewer than `layers` layers."""
        order = list(self.drawn_from(num_layers))
        random.Random(self.seed).shuffle(order)
        if self.layers is None:
            return order[: layers_to_trim(n, self.sinks + self.window, budget, num_layers)]
        if self.layers > len(order):
            raise UserError(
                f"layers={self.layers} cannot be dropped from {len(order)} layers (start={self.start}, "
                f"stop={self.stop} of {num_layers})"
            )
        return order[: self.layers]

    def drawn_from(self, num_layers: int) -> range:
        """The layers that may be trimmed."""
        # 1e-9 absorbs rounding: a third of 3 layers is one layer
        return range(*(int(share * num_layers + 1e-9) for share in (self.start, self.stop)))


@checked
class OnlyLazyLayers(SimLayerKV):
    """Figure 3: lazy layers keep everything, all others are trimmed.

    Parameters and the lazy score are SimLayerKV's. With delta=null the least lazy layers are trimmed (ties: the
    upper layer first), as many as SimLayerKV trims at the same ratio or budget.
    """

    def trims(self, scores: list[float], n: int = 0, budget: int = 0) -> list[bool]:
        lazy = self.lazy(scores, n, budget)
        if self.delta is not None:
            return [not is_lazy for is_lazy in lazy]
        least = sorted(range(len(scores)), key=lambda layer: (scores[layer], -layer))[: sum(lazy)]
        return [layer in least for layer in range(len(scores))]
