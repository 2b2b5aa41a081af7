"""SpindleKV: a linear pyramid of eviction for deep layers, a codebook of similar vectors for shallow ones."""

from dataclasses import field
from typing import Annotated, Literal

import torch
from pydantic import Field

from kvbench.cache.base import LayerCache
from kvbench.cache.reserve_ratio import ReserveRatio
from kvbench.errors import UserError
from kvbench.methods.allocation.base import Allocation
from kvbench.methods.allocation.linear_pyramid import LinearPyramid
from kvbench.methods.base import Method
from kvbench.methods.eviction import Eviction
from kvbench.methods.ratio_search import find_budget
from kvbench.methods.scoring.base import Scoring
from kvbench.methods.scoring.window_average import WindowAverage
from kvbench.methods.selection import Selection
from kvbench.methods.storage.codebook import Codebook
from kvbench.prefill import LayerState, Needs, PrefillState
from kvbench.utils.checked import Positive, Share, checked

# control=exact is content with this relative distance from the ratio that was asked for.
TOLERANCE = 0.01


@checked
class SpindleKV(Method):
    """SpindleKV (Tang et al. 2025): evict with a linear pyramid, then code what stays, in every layer.

    window, beta, score_norm   of `LinearPyramid` and `WindowAverage`. The paper gives no window; 32 is SnapKV's.
    repeat                     true unfolds GQA: every query head selects for itself. false averages a
                               group's scores and selects once per KV head (table 2).
    theta_k, theta_v, scope, reconstruct, raw_window   of `Codebook`; raw_window=false codes the window too.
    evict                      false is the codebook alone (table 5).
    allocation, scoring        others than SpindleKV's own; null for those.
    control                    null: the ratio is that of eviction, and the codebook comes on top, as in the paper.
                               exact: the eviction is searched whose outcome meets the ratio within 1 %, for each
                               sample; where none does, the nearest tried is used, as the record's own r shows.
    control_on                 what shall meet it: r (formula 15 as printed) or r_bytes.

    A budget of n or more evicts nothing, but the codebook works all the same.
    """

    window: Positive = 32
    beta: Annotated[float, Field(ge=0, lt=1)] = 0.05
    score_norm: Literal["window", "printed"] = "window"
    repeat: bool = True
    theta_k: Share = 0.98
    theta_v: Share = 0.95
    scope: Literal["kv_group", "layer", "head"] = "kv_group"
    reconstruct: bool = True
    raw_window: bool = True
    evict: bool = True
    allocation: Allocation | None = None
    scoring: Scoring | None = None
    control: Literal["exact"] | None = None
    control_on: Literal["r", "r_bytes"] = "r"
    eviction: Eviction = field(init=False, repr=False)

    def __post_init__(self):
        if self.control is not None and not self.evict:
            raise UserError("control=exact searches how much to evict: it excludes evict=false")
        self.eviction = Eviction(
            self.allocation or LinearPyramid(self.beta),
            self.scoring or WindowAverage(self.window, self.score_norm),
            "query_head" if self.repeat else "kv_head",
            "mean",
            Codebook(self.theta_k, self.theta_v, self.scope, self.reconstruct, self.window if self.raw_window else 0),
        )
        self.needs = self.eviction.needs if self.evict else Needs()
        self.takes_budget = self.evict
        self.takes_fractions = self.control is not None

    @property
    def minimum_budget(self) -> int:
        return 1 if self.control else self.eviction.minimum_budget

    @property
    def layerwise(self) -> bool:
        return self.control is None

    def compress_layer(self, layer: LayerState, index: int, num_layers: int, budget: float) -> LayerCache:
        return self.eviction.storage.store(layer, self.select(layer, index, num_layers, budget))

    def select(self, layer: LayerState, index: int, num_layers: int, budget: float) -> Selection:
        """The tokens of one layer to code. With `repeat` always per query head, for that is how r counts."""
        if self.evict and budget < layer.n:
            return self.eviction.select(layer, index, num_layers, budget)
        if not self.repeat:
            return Selection.everything(layer)
        tokens = torch.arange(layer.n, device=layer.keys.device)
        return Selection(tokens.expand(layer.num_attention_heads, -1), layer.n)

    def compress(self, state: PrefillState, budget: float) -> list[LayerCache]:
        return super().compress(state, budget) if self.control is None else self._controlled(state, budget)

    def _controlled(self, state: PrefillState, budget: float) -> list[LayerCache]:
        """Caches whose ratio is budget / n, by the eviction that leads there.

        A layer that keeps as many tokens as in an earlier try is not made again.
        """
        done: dict[tuple[int, int], LayerCache] = {}

        def caches(kept: float) -> list[LayerCache]:
            result = []
            for index, layer in enumerate(state.layers):
                selection = self.select(layer, index, len(state.layers), self._whole(kept))
                key = (index, selection.count(layer))
                if key not in done:
                    done[key] = self.eviction.storage.store(layer, selection)
                result.append(done[key])
            return result

        def ratio_at(kept: float) -> float:
            tried = caches(kept)
            stored = sum(cache.nbytes for cache in tried)
            return getattr(ReserveRatio.of([cache.kept for cache in tried], stored, state.nbytes), self.control_on)

        least = min(self.eviction.minimum_budget, state.n)
        return caches(find_budget(ratio_at, budget / state.n, least, state.n, budget, TOLERANCE))

    def _whole(self, kept: float) -> float:
        """Fractions of a token per layer move whole tokens in LinearPyramid alone."""
        return kept if self.allocation is None and self.scoring is None else round(kept)
