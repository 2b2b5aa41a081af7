"""OmniKV (Hao et al. 2025): a few layers choose the prompt tokens that the layers after them read."""

from dataclasses import field
from typing import Literal

import torch
from torch import Tensor

from kvbench.cache.base import LayerCache
from kvbench.cache.dense import DenseLayer
from kvbench.cache.reserve_ratio import Kept
from kvbench.errors import UserError
from kvbench.methods.base.method import Method
from kvbench.methods.facts import values
from kvbench.methods.selection import Selection, top_indices
from kvbench.methods.storage.base import KeptLayer
from kvbench.ops.attention import dense_attention, grouped_logits
from kvbench.ops.softmax import Scaling
from kvbench.prefill import LayerState, PrefillState
from kvbench.utils.checked import NonNegative, Positive, checked


@checked
class OmniKV(Method):
    """Dynamic selection without eviction (ICLR 2025, §4; the code's `OmniKVMulLM`).

    At each decoded token a filter layer attends to everything and chooses the `budget` prompt tokens with the largest
    attention of any of its heads. All heads of the layers up to the next filter read these and all decoded tokens.
    Layers before the first filter layer, and `wait` layers after each filter layer, read everything. The cache is
    FullKV's: r and r_bytes are 1; the savings are in r_read.

    filters   numbers of the filter layers in a model of `of` layers; another model has them at the same share of its
              depth.
    by        attention: softmax over the prompt tokens, then the maximum over heads. logits: the maximum logit.

    A budget of the prompt's length or more is FullKV.
    """

    short = values(filters=[1], of=4)
    overspends = "everything stays: the budget is what is read"

    filters: list[NonNegative] = field(default_factory=lambda: [2, 8, 18])
    of: Positive = 32
    wait: NonNegative = 1
    by: Literal["attention", "logits"] = "attention"

    layerwise = False  # layers read what the filter before them chose
    divisible = False  # a layer holds everything, whatever its budget

    def __post_init__(self) -> None:
        if not self.filters or self.filters != sorted(set(self.filters)) or self.filters[-1] >= self.of:
            raise UserError(f"filters={self.filters} must be ascending numbers of layers below of={self.of}")

    def least_share(self, element_bytes: int, layer: KeptLayer | None = None) -> float:
        return 1.0

    def filter_layers(self, num_layers: int) -> list[int]:
        """The filter layers of a model of `num_layers` layers."""
        return sorted({number * num_layers // self.of for number in self.filters})

    def compress(self, state: PrefillState, budget: int) -> list[LayerCache]:
        count = len(state.layers)
        caches = [self.layer_cache(layer, index, count, budget) for index, layer in enumerate(state.layers)]
        if budget >= state.n:
            return caches
        filters = self.filter_layers(count)
        for number, stop in zip(filters, [*filters[1:], count], strict=True):
            readers = range(number + self.wait + 1, stop)
            if readers:
                choices: dict[int, Tensor] = {}
                caches[number] = FilterLayer(state.layers[number], budget, self.by, choices)
                for index in readers:
                    caches[index] = ReadingLayer(state.layers[index], budget, choices, index == readers[-1])
        return caches

    def compress_layer(self, layer: LayerState, index: int, num_layers: int, budget: int) -> LayerCache:
        """A layer without a filter layer reads everything."""
        return DenseLayer(layer.keys, layer.values, layer.n, everything(layer))


def everything(layer: LayerState) -> Kept:
    return Selection.everything(layer).kept(layer)


class AloneLayer(DenseLayer):
    """A `DenseLayer` that takes tokens one by one and outside batches: other rounding could change the choice."""

    takes_blocks = False
    batches = False

    def __init__(self, layer: LayerState, tokens: int, choices: dict[int, Tensor]):
        """tokens: how many prompt tokens to read. choices: chosen tokens [tokens] by the number of tokens seen; the
        last reader deletes them."""
        super().__init__(layer.keys, layer.values, layer.n, everything(layer))
        self.prompt, self.tokens, self.choices = layer.n, tokens, choices


class FilterLayer(AloneLayer):
    """Reads everything, and chooses the tokens that the layers after it read."""

    def __init__(self, layer: LayerState, tokens: int, by: Literal["attention", "logits"], choices: dict[int, Tensor]):
        super().__init__(layer, tokens, choices)
        self.by = by

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        self.choices[self.seen] = self.choose(query, scaling)
        return super().attend(query, scaling)

    def reread(self, query: Tensor, scaling: Scaling) -> Tensor:
        return super().attend(query, scaling)

    def choose(self, query: Tensor, scaling: Scaling) -> Tensor:
        """The prompt tokens, ascending, [tokens], for query [1, num_attention_heads, 1, head_dim]."""
        keys = self.k.view[0, :, : self.prompt]
        scores = grouped_logits(query[0].unflatten(0, (len(keys), -1)), keys, scaling)  # [heads, group, 1, prompt]
        if self.by == "attention":
            scores = scores.softmax(dim=-1)
        return top_indices(scores.amax(dim=(0, 1)), self.tokens)[0]


class ReadingLayer(AloneLayer):
    """Reads the prompt tokens that its filter layer chose at the same step, and all decoded tokens."""

    def __init__(self, layer: LayerState, tokens: int, choices: dict[int, Tensor], last: bool):
        """last: no later layer reads the choices."""
        super().__init__(layer, tokens, choices)
        self.last = last

    @property
    def read_bytes(self) -> int:
        read = self.tokens + self.k.length - self.prompt
        return int(read * (self.k.row_bytes + self.v.row_bytes))

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        out = self._attention(query, scaling)
        if self.last and not self.unread:
            del self.choices[self.seen]
        return out

    def reread(self, query: Tensor, scaling: Scaling) -> Tensor:
        out = self._attention(query, scaling)
        if self.was_read() and self.last:
            del self.choices[self.seen]
        return out

    def _attention(self, query: Tensor, scaling: Scaling) -> Tensor:
        chosen = self.choices[self.seen]
        decoded = torch.arange(self.prompt, self.k.length, device=query.device)
        read = torch.cat([chosen.to(query.device), decoded])  # layers may be on several devices
        keys, values = (x.view.index_select(2, read) for x in (self.k, self.v))
        return dense_attention(query, keys, values, scaling)
