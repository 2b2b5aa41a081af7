"""DuoAttention (Xiao et al. 2024, arXiv 2410.10819): some heads keep everything, the others sinks and recent tokens."""

import math
from collections.abc import Sequence
from functools import lru_cache
from typing import ClassVar, NamedTuple

import torch
from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.cache.dense import DenseLayer
from kvbench.cache.parts import LayerOfParts
from kvbench.cache.reserve_ratio import Kept
from kvbench.errors import UserError
from kvbench.methods.base.method import Method
from kvbench.methods.facts import values
from kvbench.methods.heads.head_scores import read_head_scores
from kvbench.methods.selection import Selection, sinks_and_recent
from kvbench.methods.storage.base import KeptLayer
from kvbench.methods.streaming_llm import SlidingLayer
from kvbench.ops.softmax import Scaling, of_kv_heads
from kvbench.prefill import LayerState
from kvbench.utils.checked import Fraction, NonNegative, Positive, checked


class Head(NamedTuple):
    """A KV head of the model."""

    layer: int
    head: int


@checked
class DuoAttention(Method):
    """Retrieval heads keep every token; streaming heads keep the first `sinks` and last `recent` tokens at all times.

    In streaming heads a new token attends to these tokens and itself. Source: Xiao et al. 2024, arXiv 2410.10819.

    gates_file   a released pattern (full_attention_heads.tsv, its config.json beside it) or a file of `kvbench
                 calibrate`; its hash is in the record's key. The KV heads with the smallest numbers stream; numbers
                 are clipped to 0 … 1. Ties: the lower layer, then the lower head keeps everything.
    sparsity     share of KV heads that stream, whatever the ratio, counted as by the released code's quantile. null:
                 the smallest number of streaming heads that brings the mean down to the ratio or budget.
    sinks, recent   the released LongBench and needle scripts use 64 and 256; the patterns were trained with 128 and
                 256.

    The whole prompt is prefilled with full attention. The released LongBench script feeds its last 50 tokens one by
    one, so that the question is read from the compressed cache; question=hidden does so with the whole question.
    """

    short = values(sinks=4, recent=8)

    gates_file: str | None = None
    sparsity: Fraction | None = None
    sinks: NonNegative = 64
    recent: Positive = 256

    version: ClassVar[int] = 2  # 1: no head streamed if sinks and recent tokens were the whole prompt

    batches = True
    divisible = False  # the budget determines how many heads stream

    def __post_init__(self) -> None:
        self.takes_budget = self.sparsity is None
        self._gates = None if self.gates_file is None else read_head_scores(self.gates_file)
        self._ranked = lru_cache(maxsize=2)(self._ranking)  # every layer reads the same

    def floor(self, n: int, num_layers: int) -> int:
        return min(n, self.sinks + self.recent)

    def least_share(self, element_bytes: int, layer: KeptLayer | None = None) -> float:
        return 1.0

    def compress_layer(self, layer: LayerState, index: int, num_layers: int, budget: int) -> LayerCache:
        heads, short = layer.num_key_value_heads, self.sinks + self.recent
        streaming = [head for at, head in self.streaming(layer, budget) if at == index]
        retrieving = [head for head in range(heads) if head not in streaming]
        kept = self._kept(layer, streaming)
        if not streaming:
            return DenseLayer(layer.keys, layer.values, layer.n, kept)
        recents = sinks_and_recent(layer.n, self.sinks, self.recent, layer.keys.device)[0]
        keys, values = (x[streaming].index_select(1, recents) for x in (layer.keys, layer.values))
        # a new token attends to itself beside the recent ones
        parts = [(streaming, SlidingLayer(keys, values, layer.n, kept, short + 1, self.sinks, None))]
        if retrieving:
            parts.append((retrieving, DenseLayer(layer.keys[retrieving], layer.values[retrieving], layer.n, kept)))
        return DuoLayer(parts, layer.n, kept)

    def streaming(self, layer: LayerState, budget: int) -> list[Head]:
        """The KV heads of the model that stream, for a prompt of layer.n tokens."""
        if self._gates is None:
            raise UserError(
                "DuoAttention needs gates_file=FILE: a released full_attention_heads.tsv, or a file that `kvbench "
                "calibrate FILE model=…` writes for any model"
            )
        n, short = layer.n, self.sinks + self.recent
        if self.sparsity is None and n <= short:  # no head would hold less
            return []
        gates = self._gates.of_heads(layer.num_key_value_heads, layer)
        ranked = self._ranked(tuple(map(tuple, gates)))
        count = len(ranked)
        if self.sparsity is None:
            streaming = math.ceil(count * max(n - budget, 0) / (n - short))
        else:
            streaming = count if self.sparsity == 1 else math.ceil(self.sparsity * (count - 1) - 1e-9)  # float noise
        return ranked[: min(streaming, count)]

    def _ranking(self, gates: tuple[tuple[float, ...], ...]) -> list[Head]:
        """All KV heads, in the order in which they become streaming heads."""
        clipped = {Head(at, head): min(max(g, 0), 1) for at, row in enumerate(gates) for head, g in enumerate(row)}
        return sorted(clipped, key=lambda head: (clipped[head], -head.layer, -head.head))

    def _kept(self, layer: LayerState, streaming: Sequence[int]) -> Kept:
        heads, n = layer.num_key_value_heads, layer.n
        short = min(n, self.sinks + self.recent)
        counts = [short if head in streaming else n for head in range(heads)]
        places = torch.arange(n, device=layer.keys.device)
        limits = torch.tensor([n if head not in streaming else self.recent for head in range(heads)])
        chosen = (places < self.sinks) | (places >= n - limits.to(places.device)[:, None])
        return Selection(None, math.ceil(sum(counts) / heads), chosen=chosen).kept(layer, counts=counts)


class DuoLayer(LayerOfParts):
    """KV heads in several parts; each part is the cache of some heads."""

    batches = True

    def __init__(self, parts: Sequence[tuple[Sequence[int], LayerCache]], seen: int, kept: Kept) -> None:
        """parts: for each cache its KV heads, ascending, and the cache."""
        super().__init__([part for _, part in parts], seen, kept)
        self.heads = [list(heads) for heads, _ in parts]
        self.tables: list[Tensor] | None = None

    def index_tables(self) -> list[Tensor]:
        return [*(self.tables or ()), *super().index_tables()]

    def append(self, keys: Tensor, values: Tensor) -> None:
        for part, heads in zip(self.parts, self._tables(keys.device), strict=False):
            part.take(keys.index_select(1, heads), values.index_select(1, heads))

    def _tables(self, device: torch.device) -> list[Tensor]:
        """The KV heads of each part, and the place of each KV head among the parts' heads, int64; made once."""
        if self.tables is None:
            order = [head for heads in self.heads for head in heads]
            back = sorted(range(len(order)), key=order.__getitem__)
            self.tables = [torch.tensor(heads, device=device) for heads in (*self.heads, back)]
        return self.tables

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        *tables, back = self._tables(query.device)
        grouped = query.unflatten(1, (len(back), -1))  # [1, num_key_value_heads, group, q, head_dim]
        outputs = [
            part.attend(grouped.index_select(1, heads).flatten(1, 2), of_kv_heads(scaling, heads, len(back)))
            for part, heads in zip(self.parts, tables, strict=True)
        ]
        joined = torch.cat(outputs, dim=1).unflatten(1, (len(back), -1))
        return joined.index_select(1, back).flatten(1, 2)
