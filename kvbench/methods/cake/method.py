"""CAKE (Qin et al. 2025, arXiv 2503.12491): budgets of layers by their attention, tokens by its mean and variance."""

from dataclasses import field
from typing import Literal

from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.cache.kept_positions import kept_positions
from kvbench.errors import UserError
from kvbench.methods.allocation.base import Allocation
from kvbench.methods.cake.allocation import Preference
from kvbench.methods.cake.scoring import MeanVariance
from kvbench.methods.eviction.decode_compression import DecodeCompression
from kvbench.methods.eviction.eviction import Eviction
from kvbench.methods.eviction.interval_layer import IntervalLayer
from kvbench.methods.heads.equal import EqualHeads
from kvbench.methods.scoring.base import Scoring
from kvbench.methods.selection import Selection, ranking, with_window
from kvbench.methods.snapkv import WindowAttention
from kvbench.methods.storage.dense import Dense
from kvbench.prefill import LayerState, Needs
from kvbench.utils.checked import checked


@checked
class CAKE(Eviction):
    """Layers whose last queries spread and shift their attention keep more; tokens by mean + gamma · variance.

    decode   grow: evict once, after prefill, and let the cache grow.
             evict: the released code. Each head stays at its number of tokens, or at the budget if the prompt was not
             cut. After each step it drops one token before the window: the token with the least attention of the
             current query, average-pooled over 5 neighbours. Tokens are stored in the order of the scores that chose
             them, and neighbours are neighbours in that order. If the allocation's cascade cut a layer below its final
             share, the layer stays at that size; the released code lets it grow back.
    """

    allocation: Allocation = field(default_factory=Preference)
    scoring: Scoring = field(default_factory=MeanVariance)
    decode: Literal["grow", "evict"] = "grow"

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.decode == "grow":
            return
        if self.decode_compression is not None:
            raise UserError("decode=evict already drops a token at every step: leave decode_compression out")
        if self.storage != Dense() or self.heads != EqualHeads() or self.granularity != "kv_head":
            raise UserError(
                "decode=evict drops one token of each KV head from its own store: it needs dense, unfolded storage, "
                f"equal heads and granularity=kv_head, not {type(self.storage).__name__}, {type(self.heads).__name__} "
                f"and {self.granularity}"
            )
        self._current = Eviction(scoring=WindowAttention(window=1, kernel=5, pooling="avg"))

    def compress_layer(self, layer: LayerState, index: int, num_layers: int, budget: int) -> LayerCache:
        if self.decode == "grow":
            return super().compress_layer(layer, index, num_layers, budget)
        selection = self.select(layer, index, num_layers, budget)
        window = self.scoring.window_of(budget)
        uncut = budget >= layer.n or min(self.budgets.of_layers(budget, layer.n, num_layers)) >= layer.n
        limit = budget if uncut else selection.count(layer)
        if not uncut:
            chosen = ranking(self.scores(layer, window))[:, : limit - window]
            slots = with_window(chosen, layer.n, window)  # in the order of their scores
            positions = kept_positions(slots.sort(dim=-1).values, layer.n, layer.marks)
            selection = Selection(slots, selection.nominal, histogram=positions)

        def choose(state: LayerState, seen: int) -> Tensor | None:
            if state.n <= limit:
                return None
            chosen = ranking(self._current.scores(state, window))[:, : limit - window]
            return with_window(chosen, state.n, window)

        return IntervalLayer(layer, selection, DecodeCompression(every=1), choose, Needs(window=1), batches=False)
