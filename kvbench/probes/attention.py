"""How concentrated a layer's attention is (SpindleKV, figure 3a; PyramidKV's pyramidal information funnelling)."""

from dataclasses import field
from typing import Annotated

import torch
from pydantic import Field
from torch import Tensor

from kvbench.errors import UserError
from kvbench.ops.attention import window_attention
from kvbench.prefill import LayerState, Needs
from kvbench.probes.base import Probe
from kvbench.utils.checked import Positive, checked


@checked
class AttentionSparsity(Probe):
    """Smallest share of the tokens that holds `mass` of the accumulated attention, [num_attention_heads].

    Attention is summed over the last `window` queries for the tokens before them, as SpindleKV and SnapKV score
    tokens. Even attention gives `mass`; the smaller the value, the sparser the attention.
    """

    mass: Annotated[float, Field(gt=0, lt=1)] = 0.9
    window: Positive = 32
    needs: Needs = field(init=False)

    def __post_init__(self) -> None:
        self.needs = Needs(window=self.window)

    @property
    def quantity(self) -> str:
        return f"share of tokens that hold {self.mass:.0%} of the attention of the last {self.window} queries"

    def observe(self, layer: LayerState, prompt: int) -> Tensor:
        if layer.n <= self.window:
            raise UserError(
                f"a prompt of {layer.n} tokens has none before the window of {self.window}: use a smaller window="
            )
        votes = layer.window_votes(self.window)[:, : -self.window].double()
        held = votes.sort(dim=-1, descending=True).values.cumsum(dim=-1)
        count = (held < self.mass * held[:, -1:]).sum(dim=-1) + 1
        return count / votes.shape[1]


@checked
class AttentionEntropy(Probe):
    """Entropy of a query's attention relative to even attention, mean of the last `window`, [num_attention_heads].

    1 is even attention to all tokens that the query sees, 0 is attention to a single token. Attention that a head's own
    sink takes (gpt-oss) is of no token: it lowers the value.
    """

    window: Positive = 32
    needs: Needs = field(init=False)

    def __post_init__(self) -> None:
        self.needs = Needs(window=self.window)

    @property
    def quantity(self) -> str:
        return f"entropy of attention over that of even attention, last {self.window} queries"

    def observe(self, layer: LayerState, prompt: int) -> Tensor:
        window = min(self.window, layer.n - 1)  # the first query sees one token only: its entropy is 0 of 0
        if window < 1:
            raise UserError("entropy needs a query that sees two tokens: the prompt has one")
        rows = window_attention(layer.last_queries(window), layer.keys, layer.scaling)
        seen = torch.arange(layer.n - window, layer.n, device=rows.device) + 1
        return (torch.special.entr(rows).sum(dim=-1) / seen.log()).mean(dim=-1)
