"""PyramidInfer (Yang et al. 2024, arXiv 2405.12532): prefill drops context tokens that recent tokens ignore."""

import math
from functools import lru_cache
from typing import Annotated, Literal

import torch
from pydantic import Field
from torch import Tensor

from kvbench.cache.base import Growing, LayerCache, filled
from kvbench.cache.dense import DenseLayer
from kvbench.cache.kept_positions import kept_positions
from kvbench.cache.reserve_ratio import Kept
from kvbench.errors import UserError
from kvbench.methods.base.method import Method
from kvbench.methods.facts import values
from kvbench.methods.storage.base import KeptLayer
from kvbench.ops import softmax
from kvbench.ops.attention import dense_attention
from kvbench.ops.softmax import Scaling
from kvbench.prefill import LayerState
from kvbench.prefill.pruned import PrunedPrefill
from kvbench.utils.checked import NonNegative, Positive, Share, checked

# Number of decays tried when searching for the smallest reachable length.
GRID = 1000

Schedule = Literal["cosine", "constant"]


@checked
class PyramidInfer(Method):
    """Prune the context layer by layer during prefill, and generated tokens in blocks during decoding (Yang et al.
    2024, arXiv 2405.12532).

    The last 1 + int(recent_ratio·n) tokens stay in every layer. After layer l, if `interval` divides l, the context
    before them is cut to a share rho_l: the tokens with the most attention from the recent queries, averaged over all
    query heads, with weights that rise linearly from 1 to `distance_weight`. The first `sinks` tokens stay. A cut that
    would leave at most `min_ctx` tokens is not made. The cache of layer l holds the tokens that entered the layer.

    schedule   cosine: rho_l falls from 1 in the lowest layer to `decay` in the highest, as in the official
               configurations (decay 0.9 and recent_ratio 0.2: r is about 0.77). The smallest r of any decay is about
               0.47 with that recent_ratio, and about 0.37 with 0.05. constant: rho_l = decay in every layer, which
               reaches the small ratios of SpindleKV's tables, whose settings are not published. (The released "linear"
               schedule computes the same.)
    decay      null: bisection over the closed form of the lengths finds the decay whose mean length meets the ratio or
               budget. If the smallest reachable length is larger, it is taken and the record is `floored`. With a
               number the method takes no ratio or budget.
    decode     compress: once a block of `exceed_length` generated tokens has 1 + int(recent_ratio·n) younger tokens, it
               is thinned to a share of gen_compress_ratio·rho, where rho falls by a cosine from 1 to `gen_decay_ratio`
               over the layers. The prompt is not thinned again, as the README describes; the released code compares
               counters that differ by layer and cuts into the prompt. none: the cache grows, for tables about the
               prompt.
    """

    short = values(min_ctx=8, exceed_length=4)

    schedule: Schedule = "constant"
    recent_ratio: Annotated[float, Field(ge=0, lt=1)] = 0.05
    decay: Share | None = None
    min_ctx: NonNegative = 64
    interval: Positive = 1
    sinks: NonNegative = 4
    distance_weight: Annotated[float, Field(gt=0, le=1e6)] = 1.2
    decode: Literal["compress", "none"] = "compress"
    gen_decay_ratio: Share = 0.1
    gen_compress_ratio: Share = 0.9
    exceed_length: Positive = 16

    compress_at = "in_prefill"
    full_cache_tokens = 0  # the pruned pass already gives the first token

    def __post_init__(self) -> None:
        if self.sinks > self.min_ctx:
            raise UserError(
                f"sinks={self.sinks} cannot all stay in a context of min_ctx={self.min_ctx}: at most min_ctx can"
            )
        self.takes_budget = self.decay is None

    def floor(self, n: int, num_layers: int) -> int:
        """The smallest mean length of any decay at this n; the last tokens and min_ctx bound it from below."""
        if self.decay is not None:
            return self.minimum_budget
        return math.ceil(self._tokens(self._least(n, num_layers), n, num_layers) / num_layers)

    def least_share(self, element_bytes: int, layer: KeptLayer | None = None) -> float:
        return 1.0

    def plan(self, n: int, num_layers: int, budget: int | float) -> PrunedPrefill:
        if self.decay is not None:
            return self._plan(self.decay, n, num_layers)
        if budget >= n:
            return self._plan(1.0, n, num_layers)
        return self._plan(self._bisect(n, num_layers, budget), n, num_layers)

    def compress_layer(self, layer: LayerState, index: int, num_layers: int, budget: int) -> LayerCache:
        reached = None if layer.positions is None else layer.positions[None]
        positions = kept_positions(reached, layer.seen, layer.marks)
        kept = Kept.tokens(layer.n, layer.n, layer.seen, layer.num_key_value_heads, positions=positions)
        full = self.takes_budget and budget >= layer.seen  # nothing to save: FullKV
        if self.decode == "none" or full:
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

    def _bisect(self, n: int, num_layers: int, budget: int | float) -> float:
        """The largest decay whose mean length is at most `budget`; without one, the decay of the smallest length."""
        low, high = self._least(n, num_layers), 1.0
        for _ in range(50):
            middle = (low + high) / 2
            fits = self._tokens(middle, n, num_layers) <= budget * num_layers
            low, high = (middle, high) if fits else (low, middle)
        return low

    def _least(self, n: int, num_layers: int) -> float:
        """The decay that keeps the fewest tokens, by a grid search: lengths rise with decay except where a smaller
        decay reaches `min_ctx` in an earlier layer."""
        return _least(self.schedule, self.recent_ratio, self.min_ctx, self.interval, n, num_layers)

    def _tokens(self, decay: float, n: int, num_layers: int) -> int:
        return sum(self._plan(decay, n, num_layers).lengths(n))


@lru_cache(maxsize=1024)
def _least(schedule: Schedule, recent_ratio: float, min_ctx: int, interval: int, n: int, num_layers: int) -> float:
    """As `PyramidInfer._least`, once for all ratios and budgets of a sample: it takes 0.1 s for 32 layers."""
    method = PyramidInfer(schedule, recent_ratio, min_ctx=min_ctx, interval=interval, sinks=0)
    return min((step / GRID for step in range(1, GRID + 1)), key=lambda x: method._tokens(x, n, num_layers))


def cosine(layer: int, num_layers: int, least: float) -> float:
    """Half a cosine over the layers: 1 in layer 0, approaching `least` in the highest layer."""
    return (1 - least) * (math.cos(math.pi * layer / num_layers) + 1) / 2 + least


class ThinningLayer(LayerCache):
    """The unchanged prompt, thinned generated tokens, and the last `tail` to `tail` + `block` generated tokens.

    A block with `tail` younger tokens is cut to the `keep` tokens that received the most attention from the queries of
    these younger tokens, averaged over heads, with weights that rise from 1 to `distance_weight`. The queries that
    score a block are known in advance, so one running sum per token replaces the released code's buffer of attention
    rows: the same selection with O(tail) instead of O(tail · len) memory.
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
        self.scores = torch.zeros(
            0, device=keys.device
        )  # [pending]: scores of generated tokens that are not thinned yet

    def tensors(self) -> list[Tensor]:
        return [self.k.buffer, self.v.buffer, self.scores]

    def float32_tensors(self) -> list[Tensor]:
        return [self.scores]

    @property
    def filled_bytes(self) -> int:
        return filled(self.k, self.v, self.scores)

    def append(self, keys: Tensor, values: Tensor) -> None:
        self.k.append(keys)
        self.v.append(values)
        self.scores = torch.cat([self.scores, self.scores.new_zeros(keys.shape[2])])

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        self._score(query, scaling)
        out = dense_attention(query, self.k.view, self.v.view, scaling)
        if len(self.scores) == self.tail + self.block:
            self._thin()
        return out

    def _score(self, query: Tensor, scaling: Scaling) -> None:
        """Add this query's attention to the pending tokens of every block that ended before it."""
        pending = len(self.scores)
        scored = (pending - 1) // self.block * self.block  # a query does not score the block that its token is in
        if scored == 0:
            return
        keys = self.k.view[0].float()
        grouped = query[0].float().unflatten(0, (keys.shape[0], -1)).squeeze(2)  # [kv, group, head_dim]
        logits = softmax.capped_(grouped @ keys.mT * softmax.plain(scaling), scaling)
        row = softmax.weights(logits, scaling).mean(dim=(0, 1))  # [len]
        ends = torch.arange(scored, device=row.device) // self.block * self.block + self.block
        rank = pending - 1 - ends  # rank of the query among the queries that score a block: 0 … tail - 1
        weights = 1 + (self.distance_weight - 1) * rank / max(self.tail - 1, 1)
        self.scores[:scored] += weights * row[-pending:][:scored]

    def _thin(self) -> None:
        """Cut the oldest pending block in place: the buffers belong to this layer since the first append."""
        pending, device = len(self.scores), self.scores.device
        best = self.scores[: self.block].sort(descending=True, stable=True).indices[: self.keep].sort().values
        index = torch.cat([best, torch.arange(self.block, pending, device=device)])
        for store in (self.k, self.v):
            start = store.length - pending
            rows = store.view[..., start:, :].index_select(-2, index)
            store.buffer[..., start : start + len(index), :] = rows
            store.length = start + len(index)
        self.scores = self.scores[self.block :].clone()
