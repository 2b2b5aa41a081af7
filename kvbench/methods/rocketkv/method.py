"""RocketKV (Behnam et al. 2025): a coarse eviction after the prompt, then a fine selection at each decoded token."""

import math
from typing import NamedTuple

from kvbench.cache.base import LayerCache
from kvbench.cache.dense import DenseLayer
from kvbench.methods.base.method import Method
from kvbench.methods.eviction.eviction import Eviction
from kvbench.methods.facts import Launches, values
from kvbench.methods.rocketkv.layer_cache import HybridLayer
from kvbench.methods.scoring.window import Kernel
from kvbench.methods.selection import Selection
from kvbench.methods.snapkv import WindowAttention
from kvbench.methods.storage.base import KeptLayer
from kvbench.prefill import LayerState, Needs
from kvbench.utils.checked import Fraction, NonNegative, Positive, checked


@checked
class RocketKV(Method):
    """Two stages (arXiv 2502.14051, §3) that share a compression of c = n / budget: c^split and c^(1 - split).

    The first stage is SnapKV with a wide kernel and the sum of a group's scores; it keeps n / c^split tokens. The
    second stage is hybrid sparse attention over these and all decoded tokens: see `HybridLayer`. Each query then reads
    about as many bytes as `budget` tokens have: half of them for `budget` / 2 tokens, half for channels of the bounds
    that choose these tokens. r is the share of the first stage; the savings of the second stage are in r_read.

    window, kernel   parameters of SnapKV's score.
    split            the first stage's exponent; null: min(0.2 + 0.06 · log2 c, 0.8) (released code).
    dense_layers     first layers, which keep and read everything.

    A budget of the prompt's length or more is FullKV.
    """

    short = values(window=8, kernel=5)
    overspends = "the budget is what is read: more is kept"
    launches = Launches(decode=70)  # computes channels, scores and tokens of each query before attention

    window: Positive = 32
    kernel: Kernel = 63
    split: Fraction | None = None
    dense_layers: NonNegative = 0

    divisible = False  # a layer holds more than its budget

    def __post_init__(self) -> None:
        self.needs = Needs(window=self.window)

    @property
    def minimum_budget(self) -> int:
        return self.window + 1

    def least_share(self, element_bytes: int, layer: KeptLayer | None = None) -> float:
        return 1.0

    def compress_layer(self, layer: LayerState, index: int, num_layers: int, budget: int) -> LayerCache:
        if index < self.dense_layers or budget >= layer.n:
            return DenseLayer(layer.keys, layer.values, layer.n, Selection.everything(layer).kept(layer))
        capacity = self.capacity(layer.n, budget)
        scoring = WindowAttention(window=self.window, kernel=self.kernel)
        selection = Eviction(scoring=scoring, group_reduce="sum").select(layer, index, num_layers, capacity)
        page, channels = page_and_channels(capacity / budget, layer.keys.shape[2])
        keys, values = selection.of(layer.keys), selection.of(layer.values)
        return HybridLayer(keys, values, page, round(budget / 2), channels, layer.n, selection.kept(layer))

    def capacity(self, n: int, budget: int) -> int:
        """Tokens that the first stage keeps, at least `budget`."""
        c = n / budget
        split = min(0.2 + 0.06 * math.log2(c), 0.8) if self.split is None else self.split
        return max(int(n / c**split), budget)


class Reading(NamedTuple):
    """How the second stage chooses the keys that it reads."""

    page: int  # tokens of a page
    channels: int  # channels of a page's bounds


def page_and_channels(compression: float, head_dim: int) -> Reading:
    """Page size and channels with which the second stage reads 1 / `compression` of the keys."""
    page = min(math.floor(compression), math.ceil(math.sqrt(compression)))
    return Reading(page, min(head_dim, max(1, round(head_dim * page / compression))))
