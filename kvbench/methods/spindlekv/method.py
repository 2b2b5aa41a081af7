"""SpindleKV: a linear pyramid of eviction for deep layers, a codebook of similar vectors for shallow layers."""

from collections.abc import Sequence
from dataclasses import field
from functools import partial
from typing import Annotated, Literal, NamedTuple, cast

import torch
from pydantic import Field

from kvbench.cache.base import LayerCache
from kvbench.cache.reserve_ratio import Kept, RatioOver, ReserveRatio
from kvbench.errors import UserError
from kvbench.methods.allocation.base import Allocation
from kvbench.methods.allocation.weighted import refuse_weighted
from kvbench.methods.base.method import Method
from kvbench.methods.eviction.eviction import Eviction
from kvbench.methods.facts import values
from kvbench.methods.scoring.base import Scoring
from kvbench.methods.selection import Selection
from kvbench.methods.spindlekv.allocation import LinearPyramid
from kvbench.methods.spindlekv.codebook.coding import CoveredLayer
from kvbench.methods.spindlekv.codebook.storage import Codebook
from kvbench.methods.spindlekv.ranked_selection import Ranks
from kvbench.methods.spindlekv.ratio_search import find_budget
from kvbench.methods.spindlekv.scoring import WindowAverage
from kvbench.methods.storage.base import KeptLayer
from kvbench.prefill import LayerState, Needs, PrefillState
from kvbench.utils.checked import Positive, Share, checked

TOLERANCE = 0.01  # relative; control=exact accepts this distance from the requested ratio


class Key(NamedTuple):
    """The numbers that determine a layer's selection."""

    layer: int
    tokens: int
    protected: int  # how many of them are always the last tokens of the prompt


@checked
class SpindleKV(Method):
    """SpindleKV (Tang et al. 2025, arXiv 2507.06517): evict with a linear pyramid, then code the kept tokens.

    window, beta, score_norm   as in `WindowAverage` and `LinearPyramid`. The paper gives no window; 32 is SnapKV's.
    repeat                     true: GQA is unfolded, every query head selects tokens. false: a group's scores are
                               averaged, and each KV head selects once (table 2).
    theta_k, theta_v, scope, reconstruct, ratio_over, raw_window   as in `Codebook`; raw_window=false: the window is
                               coded, too.
    evict                      false: the codebook alone (table 5).
    allocation, scoring        parts instead of SpindleKV's; null: SpindleKV's.
    control                    exact: for each sample, search the eviction whose cache has the requested ratio within
                               1 %. If there is none, the nearest is used and the record is `target_missed`.
                               null: the ratio is the eviction's alone, as in the paper.
    control_on                 the ratio to meet: r (formula 15 as printed) or r_bytes.

    A budget of n or more evicts nothing, but the codebook still merges vectors.
    """

    short = values(window=8)
    never_full = "coded"

    window: Positive = 32
    beta: Annotated[float, Field(ge=0, lt=1)] = 0.05
    score_norm: Literal["window", "printed"] = "window"
    repeat: bool = True
    theta_k: Share = 0.98
    theta_v: Share = 0.95
    scope: Literal["kv_group", "layer", "head"] = "kv_group"
    reconstruct: bool = True
    ratio_over: RatioOver = "kv_heads"
    raw_window: bool = True
    evict: bool = True
    allocation: Allocation | None = None
    scoring: Scoring | None = None
    control: Literal["exact"] | None = "exact"
    control_on: Literal["r", "r_bytes"] = "r"
    eviction: Eviction = field(init=False, repr=False)

    @property
    def overspends(self) -> str:
        if self.control is not None:
            return "the ratio is met after merging, by a larger budget for eviction"
        return super().overspends

    def most_share(self, tokens: int) -> float:
        return 1.05  # as `Codebook`

    @property
    def counts_groups(self) -> bool:
        return self.repeat

    def __post_init__(self) -> None:
        if self.control is not None and not self.evict:
            raise UserError("control=exact searches how much to evict: with evict=false it must be null")
        refuse_weighted(self.allocation, "SpindleKV")
        raw = self.window if self.raw_window else 0
        self._codebook = Codebook(self.theta_k, self.theta_v, self.scope, self.reconstruct, raw, self.ratio_over)
        self.eviction = Eviction(
            self.allocation or LinearPyramid(self.beta),
            self.scoring or WindowAverage(self.window, self.score_norm),
            "query_head" if self.repeat else "kv_head",
            storage=self._codebook,
        )
        self.needs = self.eviction.needs if self.evict else Needs()
        self.takes_budget = self.evict
        self.takes_fractions = self.control is not None

    @property
    def minimum_budget(self) -> int:
        return 1 if self.control else self.eviction.minimum_budget

    def least_share(self, element_bytes: int, layer: KeptLayer | None = None) -> float:
        return self._codebook.least_share(element_bytes, layer)

    @property
    def unfolds(self) -> bool:
        return self._codebook.unfolds

    @property
    def layerwise(self) -> bool:
        return self.control is None

    def compress_layer(self, layer: LayerState, index: int, num_layers: int, budget: int) -> LayerCache:
        return self._codebook.store(layer, self.select(layer, index, num_layers, budget))

    def select(self, layer: LayerState, index: int, num_layers: int, budget: int) -> Selection:
        """The tokens of one layer to code. With `repeat` they are per query head, as ratio_over=query_heads counts."""
        if self.evict and budget < layer.n:
            return self.eviction.select(layer, index, num_layers, budget)
        if not self.repeat:
            return Selection.everything(layer)
        tokens = torch.arange(layer.n, device=layer.keys.device)
        return Selection(tokens.expand(layer.num_attention_heads, -1), layer.n)

    def compress(self, state: PrefillState, budget: int) -> list[LayerCache]:
        if self.control is not None:
            return self._controlled(state, budget)
        selections = Selector(self, state.layers)(range(len(state.layers)), budget)
        return self._codebook.store_all(state.layers, selections)

    def missed(self, ratio: ReserveRatio, target: float) -> bool:
        return self.control is not None and abs(getattr(ratio, self.control_on) - target) > TOLERANCE * target

    def _controlled(self, state: PrefillState, budget: float) -> list[LayerCache]:
        """Caches whose ratio is budget / n, by a search for the eviction's budget.

        A try covers the layers whose selection changes, and packs none: the sizes of the covers give the ratio. Sizes
        of all tries are kept, but only the last cover of each layer. A cover takes 40 bytes per token of a book, on a
        GPU in tensors of all layers that were covered together. Each layer is packed once, at the end.
        """
        count, storage = len(state.layers), self._codebook
        select = Selector(self, state.layers)
        sizes: dict[Key, tuple[Kept, int]] = {}
        covers: dict[int, tuple[Key, CoveredLayer]] = {}

        def cover(changed: list[Key], kept: int) -> None:
            """Cover the layers with these keys again."""
            places = [key.layer for key in changed]
            for index in places:
                covers.pop(index, None)  # free it before the next cover is made
            covered_layers = storage.cover_all([state.layers[index] for index in places], select(places, kept))
            for key, covered in zip(changed, covered_layers, strict=True):
                covers[key.layer] = key, covered
                sizes[key] = covered.kept, covered.nbytes

        def keys(kept: int) -> list[Key]:
            everything = kept >= state.n
            tokens = [
                state.n if everything else self.eviction.budgets.of_layer(layer, index, count, kept)
                for index, layer in enumerate(state.layers)
            ]
            protected = state.n if everything else self.eviction.scoring.window_of(kept)
            return [Key(index, k, protected) for index, k in enumerate(tokens)]

        def ratio_at(tried: float) -> float:
            kept = self._whole(tried)
            cover([key for key in keys(kept) if key not in sizes], kept)
            layers, stored = zip(*(sizes[key] for key in keys(kept)), strict=True)
            ratio = ReserveRatio.from_layers(layers, sum(stored), state.nbytes)
            return ratio.r if self.control_on == "r" else ratio.r_bytes

        least = min(self.eviction.minimum_budget, state.n)
        kept = self._whole(find_budget(ratio_at, budget / state.n, least, state.n, budget, TOLERANCE))
        cover([key for key in keys(kept) if key.layer not in covers or covers[key.layer][0] != key], kept)
        return [*storage.pack_all([covers[index][1] for index in range(count)])]

    def _whole(self, kept: float) -> int:
        """The budget in whole tokens; unchanged for LinearPyramid, where fractions move tokens between layers."""
        return cast(int, kept) if self.allocation is None and self.scoring is None else round(kept)


class Selector:
    """Selects the tokens of layers to code at any budget. Tokens are ranked once if scores alone order them."""

    def __init__(self, method: SpindleKV, layers: Sequence[LayerState]) -> None:
        self.method, self.layers = method, layers
        self.ranks: Ranks | None = None

    def __call__(self, places: Sequence[int], budget: int) -> Sequence[Selection]:
        """The selections of the layers `places`."""
        if not places:
            return []
        method, eviction, count = self.method, self.method.eviction, len(self.layers)
        n = self.layers[0].n
        everything = budget >= n
        ranked = method.evict and eviction.scoring.orders_by_scores
        if not ranked or (everything and self.ranks is None):
            return [method.select(self.layers[index], index, count, budget) for index in places]
        if everything and self.ranks is not None:
            ranks, tokens = self.ranks, [n] * count
        else:
            ranks = self._rank(eviction.scoring.window_of(budget))
            tokens = [eviction.budgets.of_layer(layer, index, count, budget) for index, layer in enumerate(self.layers)]
        chosen = ranks.first(tokens)
        return [chosen[index] for index in places]

    def _rank(self, window: int) -> Ranks:
        if self.ranks is None or self.ranks.window != window:
            self.ranks = Ranks(self.layers, partial(self.method.eviction.scores, window=window), window)
        return self.ranks
