"""PyramidInfer: context that recent tokens ignore is dropped during prefill, more of it layer by layer."""

import math
from dataclasses import dataclass

from kvbench.cache.base import LayerCache
from kvbench.cache.dense import DenseLayer
from kvbench.cache.thinning import ThinningLayer
from kvbench.errors import UserError
from kvbench.methods.base import Method, at_least, choice, is_number
from kvbench.prefill import LayerState
from kvbench.pruning import Pruning
from kvbench.ratio import Kept
from kvbench.where import where

# Decays tried when the smallest reachable length is looked for.
GRID = 1000


@dataclass
class PyramidInfer(Method):
    """PyramidInfer (Yang et al. 2024, and its released code).

    The last 1 + int(recent_ratio·n) tokens stay in every layer. After layer l, if interval divides l, the
    context before them is cut to a share rho_l: the tokens with most attention from these recent queries, in
    the mean over all query heads, weights rising linearly from 1 to `distance_weight`. The first `sinks`
    stay. A cut that would leave `min_ctx` tokens or fewer is not made. Layer l's cache holds what entered it.

    schedule="cosine"    rho_l falls from 1 at the bottom to `decay` at the top. The official configurations:
                         decay 0.9, recent_ratio 0.2; with that recent_ratio r cannot go below about 0.5.
    schedule="constant"  rho_l = decay in every layer; reaches the small ratios of SpindleKV's tables, whose
                         settings are not told. (The released "linear" schedule computes this one.)
    decay                null finds, by bisection over the closed form of the lengths, the decay that meets
                         the asked ratio or budget, or the fewest tokens that any reaches where that is below
                         (then the record is `floored`); with a number no ratio is asked.
    decode="compress"    generated tokens are thinned in blocks of `exceed_length` once 1 + int(recent_ratio·n)
                         younger ones exist, to gen_compress_ratio·rho of them, rho falling by a cosine from 1 to
                         `gen_decay_ratio` over the layers. The prompt is left alone, as the README has it; the
                         released code compares counters that differ by layer and cuts into the prompt.
    decode="none"        the cache grows, for tables about the prompt.
    """

    schedule: str = "constant"
    recent_ratio: float = 0.05
    decay: float | None = None
    min_ctx: int = 64
    interval: int = 1
    sinks: int = 4
    distance_weight: float = 1.2
    decode: str = "compress"
    gen_decay_ratio: float = 0.1
    gen_compress_ratio: float = 0.9
    exceed_length: int = 16

    compress_at = "in_prefill"
    full_cache_tokens = 0  # the first token already comes from the pruned pass

    def __post_init__(self):
        choice("schedule", self.schedule, ("cosine", "constant"))
        choice("decode", self.decode, ("compress", "none"))
        at_least("min_ctx", self.min_ctx, 0)
        at_least("interval", self.interval, 1)
        at_least("sinks", self.sinks, 0)
        at_least("exceed_length", self.exceed_length, 1)
        if self.sinks > self.min_ctx:
            raise UserError(
                f"sinks={self.sinks} cannot all stay in a context of min_ctx={self.min_ctx}: at most that many"
            )
        if not is_number(self.recent_ratio) or not 0 <= self.recent_ratio < 1:
            raise UserError(f"recent_ratio={self.recent_ratio!r} is outside [0, 1): it is a share of the prompt")
        if not is_number(self.distance_weight) or self.distance_weight <= 0:
            raise UserError(f"distance_weight={self.distance_weight!r} must be a number above 0")
        for name in ("decay", "gen_decay_ratio", "gen_compress_ratio"):
            value = getattr(self, name)
            if not (name == "decay" and value is None) and not (is_number(value) and 0 < value <= 1):
                raise UserError(f"{name}={value!r} is outside (0, 1]: it is a share of tokens to keep")
        self.takes_budget = self.decay is None

    def floor(self, n: int, num_layers: int) -> int:
        """The smallest mean length that any decay reaches at this n: the last tokens and min_ctx see to one."""
        if self.decay is not None:
            return self.minimum_budget
        return math.ceil(self._tokens(self._least(n, num_layers), n, num_layers) / num_layers)

    def pruning(self, n: int, num_layers: int, budget: int) -> Pruning:
        if self.decay is not None:
            return self._pruning(self.decay, n, num_layers)
        if budget >= n:
            return self._pruning(1.0, n, num_layers)
        return self._pruning(self._bisect(n, num_layers, budget), n, num_layers)

    def compress_layer(self, layer: LayerState, index: int, num_layers: int, budget: int) -> LayerCache:
        reached = None if layer.positions is None else layer.positions[None]
        kept = Kept.tokens(layer.n, layer.n, layer.seen, layer.num_key_value_heads, where=where(reached, layer.seen))
        whole = self.takes_budget and budget >= layer.seen  # nothing is to be saved: FullKV
        if self.decode == "none" or whole:
            return DenseLayer(layer.keys, layer.values, layer.seen, kept)
        share = self.gen_compress_ratio * cosine(index, num_layers, self.gen_decay_ratio)
        return ThinningLayer(
            layer.keys,
            layer.values,
            layer.seen,
            kept,
            tail=1 + self._recent(layer.seen),
            block=self.exceed_length,
            keep=max(int(self.exceed_length * share), 1),
            distance_weight=self.distance_weight,
        )

    def _recent(self, n: int) -> int:
        return int(self.recent_ratio * n)

    def _pruning(self, decay: float, n: int, num_layers: int) -> Pruning:
        layers = range(num_layers)
        shares = [cosine(layer, num_layers, decay) if self.schedule == "cosine" else decay for layer in layers]
        shares = [1.0 if layer % self.interval else shares[layer] for layer in layers]
        return Pruning(tuple(shares), self._recent(n), self.sinks, self.min_ctx, self.distance_weight)

    def _bisect(self, n: int, num_layers: int, budget: int) -> float:
        """The decay at which the mean length comes up to `budget` from below; the least length's if none does."""
        low, high = self._least(n, num_layers), 1.0
        for _ in range(50):
            middle = (low + high) / 2
            fits = self._tokens(middle, n, num_layers) <= budget * num_layers
            low, high = (middle, high) if fits else (low, middle)
        return low

    def _least(self, n: int, num_layers: int) -> float:
        """The decay of the fewest tokens. Lengths rise with decay, except where a smaller one runs into
        `min_ctx` earlier, so a grid is searched."""
        return min((step / GRID for step in range(1, GRID + 1)), key=lambda x: self._tokens(x, n, num_layers))

    def _tokens(self, decay: float, n: int, num_layers: int) -> int:
        return sum(self._pruning(decay, n, num_layers).lengths(n))


def cosine(layer: int, num_layers: int, least: float) -> float:
    """Half a cosine over the layers: 1 in layer 0, towards `least` at the top."""
    return (1 - least) * (math.cos(math.pi * layer / num_layers) + 1) / 2 + least
