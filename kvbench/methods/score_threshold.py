"""A threshold of scores instead of a budget, as in DMS, with any scoring instead of DMS's trained scores."""

import math
from dataclasses import field
from typing import ClassVar, Literal

import torch.nn.functional as F
from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.errors import UserError
from kvbench.methods.base.method import Method
from kvbench.methods.eviction.eviction import Eviction
from kvbench.methods.facts import Launches, values
from kvbench.methods.scoring.base import Scoring
from kvbench.methods.selection import Selection
from kvbench.methods.snapkv import WindowAttention
from kvbench.methods.storage.base import Storage, require_ragged
from kvbench.methods.storage.dense import Dense
from kvbench.prefill import LayerState
from kvbench.utils.checked import NonNegative, Number, checked


@checked
class ScoreThreshold(Method):
    """Keep, in each head, all tokens with a score of at least `threshold` and the last `window` tokens.

    DMS (Łańcucki et al. 2025, arXiv 2506.05345) trains a model to decide for each token whether it is dropped when it
    leaves a sliding window. Without trained weights any scoring can decide, as in kvpress's DMSPress. There is no
    budget: r depends on the prompt. Tokens are dropped once, after the prompt, with two waits for the device in each
    layer.

    threshold   in the unit of `scoring`'s scores; SnapKV's scores are the attention of `window` queries.
    window      last tokens that are always kept; the scoring's window if it is larger.
    """

    short = values(window=8, threshold=0.08)
    launches = Launches(compress_waits=2)  # counts its tokens before they are stored

    version: ClassVar[int] = 2  # 1 smoothed no score over the edge of a window larger than the scorer's

    threshold: Number
    scoring: Scoring = field(default_factory=WindowAttention)
    window: NonNegative = 128
    granularity: Literal["kv_head", "query_head"] = "kv_head"
    group_reduce: Literal["mean", "max", "sum"] = "mean"
    storage: Storage = field(default_factory=Dense)

    takes_budget = False

    def __post_init__(self) -> None:
        if not self.scoring.orders_by_scores:
            raise UserError(
                f"{type(self.scoring).__name__} does not choose tokens by one score each: no threshold applies to it"
            )
        require_ragged(self.storage, type(self).__name__)
        self._eviction = Eviction(
            scoring=self.scoring,
            granularity=self.granularity,
            group_reduce=self.group_reduce,
            storage=self.storage,
        )
        self.needs = self._eviction.needs

    def compress_layer(self, layer: LayerState, index: int, num_layers: int, budget: int) -> LayerCache:
        if layer.n <= self.recent(layer):
            return self.storage.store(layer.stored, Selection.everything(layer))
        chosen = self.chosen(layer)
        if len(chosen) == 1:
            indices = chosen[0].nonzero().T
            return self.storage.store(layer.stored, Selection(indices, indices.shape[1]))
        mean = math.ceil(int(chosen.sum()) / len(chosen))
        return self.storage.store(layer.stored, Selection(None, mean, chosen=chosen))

    def chosen(self, layer: LayerState) -> Tensor:
        """The tokens that each head keeps, bool [heads, n], of a prompt longer than `recent`."""
        window = self.recent(layer)
        # smoothing covers all tokens before the scoring's window, even if `window` is larger
        scores = self._eviction.scores(layer, self.scoring.window_of(layer.n))[:, : layer.n - window]
        return F.pad(scores >= self.threshold, (0, window), value=True)

    def recent(self, layer: LayerState) -> int:
        """The number of last tokens, which always stay."""
        return max(self.window, self.scoring.window_of(layer.n))
