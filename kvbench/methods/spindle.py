"""SpindleKV: a linear pyramid of eviction for deep layers, a codebook of similar vectors for shallow ones."""

import math
from dataclasses import dataclass, field

import torch
from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.errors import UserError
from kvbench.methods.allocation import Allocation
from kvbench.methods.base import Method, at_least, choice, is_number
from kvbench.methods.codebook import Codebook
from kvbench.methods.control import meet
from kvbench.methods.eviction import Eviction
from kvbench.methods.scoring import Scoring
from kvbench.methods.selection import Selection
from kvbench.prefill import LayerState, Needs, PrefillState
from kvbench.ratio import ReserveRatio

# control=exact is content with this relative distance from the ratio that was asked for.
TOLERANCE = 0.01


@dataclass(frozen=True)
class LinearPyramid:
    """SpindleKV (Tang et al. 2025, §3.3, equations 5 to 7): keep ratios fall linearly, none below beta.

    With r_c the share of the context (all but the window) kept on average and alpha = (1 + beta) / 2, layer 0
    keeps 2r_c - beta and the last one beta where beta < r_c <= alpha, else 1 and 2r_c - 1. The paper prints
    0.05 for beta and 1 - 2r_c, which is negative there. Below beta, where it says nothing, all layers
    keep r_c. The mean over layers is r_c, less the fractions of tokens that are cut off.
    """

    beta: float = 0.05

    def __post_init__(self):
        if not is_number(self.beta) or not 0 <= self.beta < 1:
            raise UserError(f"beta={self.beta!r} is outside [0, 1): it is the least share of tokens in a layer")

    def ratios(self, r_c: float, num_layers: int) -> list[float]:
        """Keep ratio of the context in each layer, for a mean of r_c."""
        bottom, top = r_c, r_c
        if r_c > (1 + self.beta) / 2:
            bottom, top = 1.0, 2 * r_c - 1
        elif r_c > self.beta:
            bottom, top = 2 * r_c - self.beta, self.beta
        if num_layers == 1:
            return [r_c]
        return [bottom + (top - bottom) * layer / (num_layers - 1) for layer in range(num_layers)]

    def tokens(self, budget: float, n: int, window: int, num_layers: int) -> list[int]:
        context = n - window
        r_c = max(budget - window, 0) / context
        # 1e-9 forgives float noise on whole numbers
        return [math.floor(ratio * context + 1e-9) + window for ratio in self.ratios(r_c, num_layers)]


@dataclass
class WindowAverage(Scoring):
    """SpindleKV's accumulated attention (§3.1, equations 2 and 3): the window's queries, not pooled.

    score_norm="window"    divided by the w queries of the window, as the text says; SnapKV's order.
    score_norm="printed"   divided by n - a for the key at position a, as the formula is printed: the count of
                           an all-query sum, which favours late tokens by up to n / w.
    """

    window: int = 32
    score_norm: str = "window"

    def __post_init__(self):
        at_least("window", self.window, 1)
        choice("score_norm", self.score_norm, ("window", "printed"))
        self.needs = Needs(window=self.window)
        self.minimum_budget = self.window + 1

    def protected(self, budget: int) -> int:
        return self.window

    def votes(self, layer: LayerState) -> Tensor:
        votes = layer.window_votes(self.window)
        if self.score_norm == "window":
            return votes / self.window
        return votes / torch.arange(layer.n, 0, -1, device=votes.device)


@dataclass
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

    window: int = 32
    beta: float = 0.05
    score_norm: str = "window"
    repeat: bool = True
    theta_k: float = 0.98
    theta_v: float = 0.95
    scope: str = "kv_group"
    reconstruct: bool = True
    raw_window: bool = True
    evict: bool = True
    allocation: Allocation | None = None
    scoring: Scoring | None = None
    control: str | None = None
    control_on: str = "r"
    eviction: Eviction = field(init=False, repr=False)

    def __post_init__(self):
        if self.control is not None:
            choice("control", self.control, ("exact",))
            if not self.evict:
                raise UserError("control=exact searches how much to evict: it excludes evict=false")
        choice("control_on", self.control_on, ("r", "r_bytes"))
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
        return caches(meet(ratio_at, budget / state.n, least, state.n, budget, TOLERANCE))

    def _whole(self, kept: float) -> float:
        """Fractions of a token per layer move whole tokens in LinearPyramid alone."""
        return kept if self.allocation is None and self.scoring is None else round(kept)
