"""Dropping the cache of other layers than the lazy ones: the controls of SimLayerKV's figures 3 and 6."""

import math
import random
from dataclasses import dataclass, field

from kvbench.cache.base import LayerCache
from kvbench.errors import UserError
from kvbench.methods.base import Method
from kvbench.methods.selection import Selection
from kvbench.methods.simlayerkv import SimLayerKV, layers_to_trim, trimmed
from kvbench.methods.storage.base import Storage, refuse_joint, refuse_union
from kvbench.methods.storage.dense import Dense
from kvbench.prefill import LayerState
from kvbench.utils.validation import at_least, is_number


@dataclass
class RandomLayers(Method):
    """SimLayerKV (arXiv 2410.13846), figure 6: trim random layers to `sinks` and `window` recent tokens.

    start, stop  the layers to draw from, as shares of depth: layer l of m with floor(start·m) <= l <
                 floor(stop·m). At m = 32, 0 to .5 is the figure's [0, 16), .5 to 1 its [16, 32).
    layers       how many are trimmed. null: the fewest whose mean over all layers is at most the ratio or
                 budget asked for, as SimLayerKV with delta=null, so the two drop equally much at one ratio.
                 Where the whole range is not enough, r tells.
    seed         draws an order of the range. More layers at the same seed are the same ones and further ones,
                 and every prompt has the same.
    """

    start: float = 0.0
    stop: float = 1.0
    layers: int | None = None
    seed: int = 0
    sinks: int = 4
    window: int = 1024
    storage: Storage = field(default_factory=Dense)

    def __post_init__(self):
        if not (is_number(self.start) and is_number(self.stop)) or not 0 <= self.start < self.stop <= 1:
            raise UserError(f"start={self.start!r}, stop={self.stop!r}: 0 <= start < stop <= 1, shares of the depth")
        if self.layers is not None:
            at_least("layers", self.layers, 0)
        at_least("seed", self.seed, 0)
        at_least("sinks", self.sinks, 0)
        at_least("window", self.window, 1)
        refuse_joint(self.storage, "RandomLayers")
        refuse_union(self.storage, "RandomLayers")
        self.takes_budget = self.layers is None

    @property
    def divisible(self) -> bool:
        return False  # the budget says how many layers are dropped

    def floor(self, n: int, num_layers: int) -> int:
        short = min(n, self.sinks + self.window)
        dropped = len(self.drawn_from(num_layers))
        return math.ceil((dropped * short + (num_layers - dropped) * n) / num_layers)

    def compress_layer(self, layer: LayerState, index: int, num_layers: int, budget: int) -> LayerCache:
        kept = Selection.everything(layer)
        if index in self.dropped(layer.n, num_layers, budget):
            kept = trimmed(layer, self.sinks, self.window)
        return self.storage.store(layer, kept)

    def dropped(self, n: int, num_layers: int, budget: int) -> list[int]:
        """The layers that are trimmed, in the order drawn."""
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
        """The layers to draw from."""
        # 1e-9: a third of 3 layers is one layer, whatever floating point makes of it
        return range(*(int(share * num_layers + 1e-9) for share in (self.start, self.stop)))


@dataclass
class OnlyLazyLayers(SimLayerKV):
    """SimLayerKV (arXiv 2410.13846), figure 3: lazy layers keep everything, all others are trimmed.

    Parameters and the lazy score are SimLayerKV's. With delta=null the least lazy layers are trimmed (ties: the
    upper layer first), as many as SimLayerKV trims at the same ratio or budget.
    """

    def trims(self, scores: list[float], n: int = 0, budget: int = 0) -> list[bool]:
        lazy = self.lazy(scores, n, budget)
        if self.delta is not None:
            return [not one for one in lazy]
        least = sorted(range(len(scores)), key=lambda layer: (scores[layer], -layer))[: sum(lazy)]
        return [layer in least for layer in range(len(scores))]
