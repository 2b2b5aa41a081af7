"""PyramidInfer: context that recent tokens ignore is dropped during prefill, more of it layer by layer."""

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from kvbench.cache.base import Growing, LayerCache
from kvbench.cache.dense import DenseLayer
from kvbench.cache.kept_positions import kept_positions
from kvbench.cache.reserve_ratio import Kept
from kvbench.errors import UserError
from kvbench.methods.base import Method
from kvbench.ops.attention import dense_attention
from kvbench.prefill import LayerState
from kvbench.prefill.pruned import PrunedPrefill
from kvbench.utils.validation import at_least, choice, is_number

# Decays tried when the smallest reachable length is looked for.
GRID = 1000


class ThinningLayer(LayerCache):
    """The prompt as it is, thinned generated tokens, and the last `tail` to `tail` + `block` generated ones.

    A block that has `tail` younger tokens is cut to the `keep` of its tokens to which the queries of these
    gave most attention, in the mean over heads, the weights rising from 1 to `distance_weight`. Which queries
    judge a block is known beforehand, so one running sum per token replaces the buffer of attention rows of
    the released code: the same choice in O(tail) instead of O(tail · len) memory.
    """

    def __init__(
        self,
        keys: Tensor,
        values: Tensor,
        seen: int,
        kept: Kept,
        tail: int,
        block: int,
        keep: int,
        distance_weight: float,
    ):
        """keys, values [num_key_value_heads, len, head_dim] of the prompt."""
        super().__init__(seen, kept)
        self.k, self.v = Growing(keys[None]), Growing(values[None])
        self.tail, self.block, self.keep, self.distance_weight = tail, block, keep, distance_weight
        self.scores = torch.zeros(0, device=keys.device)  # [pending] of the generated tokens not yet thinned

    def tensors(self) -> list[Tensor]:
        return [self.k.buffer, self.v.buffer, self.scores]

    def append(self, keys: Tensor, values: Tensor) -> None:
        self.k.append(keys)
        self.v.append(values)
        self.scores = torch.cat([self.scores, self.scores.new_zeros(keys.shape[2])])

    def attend(self, query: Tensor, scaling: float) -> Tensor:
        self._judge(query, scaling)
        out = dense_attention(query, self.k.view, self.v.view, scaling)
        if len(self.scores) == self.tail + self.block:
            self._thin()
        return out

    def _judge(self, query: Tensor, scaling: float) -> None:
        """Add this query's attention to the pending tokens of every block that ended before it."""
        pending = len(self.scores)
        judged = (pending - 1) // self.block * self.block  # the query's own block waits for later ones
        if judged == 0:
            return
        keys = self.k.view[0].float()
        grouped = query[0].float().unflatten(0, (keys.shape[0], -1)).squeeze(2)  # [kv, group, head_dim]
        row = (grouped @ keys.mT * scaling).softmax(dim=-1).mean(dim=(0, 1))  # [len]
        ends = torch.arange(judged, device=row.device) // self.block * self.block + self.block
        rank = pending - 1 - ends  # of the query among those that judge a token's block: 0 … tail - 1
        weights = 1 + (self.distance_weight - 1) * rank / max(self.tail - 1, 1)
        self.scores[:judged] += weights * row[-pending:][:judged]

    def _thin(self) -> None:
        """Cut the oldest pending block, in place: the buffers are this layer's own since the first append."""
        pending, device = len(self.scores), self.scores.device
        best = self.scores[: self.block].sort(descending=True, stable=True).indices[: self.keep].sort().values
        index = torch.cat([best, torch.arange(self.block, pending, device=device)])
        for store in (self.k, self.v):
            start = store.length - pending
            rows = store.view[..., start:, :].index_select(-2, index)
            store.buffer[..., start : start + len(index), :] = rows
            store.length = start + len(index)
        self.scores = self.scores[self.block :].clone()


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

    def plan(self, n: int, num_layers: int, budget: int) -> PrunedPrefill:
        if self.decay is not None:
            return self._plan(self.decay, n, num_layers)
        if budget >= n:
            return self._plan(1.0, n, num_layers)
        return self._plan(self._bisect(n, num_layers, budget), n, num_layers)

    def compress_layer(self, layer: LayerState, index: int, num_layers: int, budget: int) -> LayerCache:
        reached = None if layer.positions is None else layer.positions[None]
        positions = kept_positions(reached, layer.seen)
        kept = Kept.tokens(layer.n, layer.n, layer.seen, layer.num_key_value_heads, positions=positions)
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

    def _plan(self, decay: float, n: int, num_layers: int) -> PrunedPrefill:
        layers = range(num_layers)
        shares = [cosine(layer, num_layers, decay) if self.schedule == "cosine" else decay for layer in layers]
        shares = [1.0 if layer % self.interval else shares[layer] for layer in layers]
        return PrunedPrefill(tuple(shares), self._recent(n), self.sinks, self.min_ctx, self.distance_weight)

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
        return sum(self._plan(decay, n, num_layers).lengths(n))


def cosine(layer: int, num_layers: int, least: float) -> float:
    """Half a cosine over the layers: 1 in layer 0, towards `least` at the top."""
    return (1 - least) * (math.cos(math.pi * layer / num_layers) + 1) / 2 + least
