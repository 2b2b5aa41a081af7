"""How few tokens a layer's attention falls on (SpindleKV, figure 3a; PyramidKV's pyramidal funnelling)."""

from dataclasses import dataclass, field

import torch
from torch import Tensor

from kvbench.errors import UserError
from kvbench.ops.attention import window_attention
from kvbench.prefill import LayerState, Needs
from kvbench.probes.base import Probe
from kvbench.utils.validation import at_least, is_number


@dataclass
class AttentionSparsity(Probe):
    """Smallest share of the tokens that holds `mass` of the accumulated attention, [num_attention_heads].

    Attention is accumulated over the last `window` queries, over the tokens before them, as SpindleKV and SnapKV
    do to choose tokens. 1 · mass would be even attention; the smaller, the sparser.
    """

    mass: float = 0.9
    window: int = 32
    needs: Needs = field(init=False)

    def __post_init__(self):
        at_least("window", self.window, 1)
        if not is_number(self.mass) or not 0 < self.mass < 1:
            raise UserError(f"mass={self.mass!r} must be a share of attention between 0 and 1")
        self.needs = Needs(window=self.window)

    @property
    def quantity(self) -> str:
        return f"share of tokens that hold {self.mass:.0%} of the attention of the last {self.window} queries"

    def observe(self, layer: LayerState, prompt: int) -> Tensor:
        if layer.n <= self.window:
            raise UserError(f"a prompt of {layer.n} tokens has none before the window of {self.window}: window=")
        votes = layer.window_votes(self.window)[:, : -self.window].double()
        held = votes.sort(dim=-1, descending=True).values.cumsum(dim=-1)
        count = (held < self.mass * held[:, -1:]).sum(dim=-1) + 1
        return count / votes.shape[1]


@dataclass
class AttentionEntropy(Probe):
    """Entropy of a query's attention over that of even attention, mean of the last `window`, [num_attention_heads].

    1 is even attention to all tokens that the query sees, 0 all of it on one token.
    """

    window: int = 32
    needs: Needs = field(init=False)

    def __post_init__(self):
        at_least("window", self.window, 1)
        self.needs = Needs(window=self.window)

    @property
    def quantity(self) -> str:
        return f"entropy of attention over that of even attention, last {self.window} queries"

    def observe(self, layer: LayerState, prompt: int) -> Tensor:
        window = min(self.window, layer.n - 1)  # the first query sees one token: no entropy to speak of
        if window < 1:
            raise UserError("entropy needs a query that sees two tokens: the prompt has one")
        rows = window_attention(layer.queries[:, -window:].contiguous(), layer.keys, layer.scaling)
        seen = torch.arange(layer.n - window, layer.n, device=rows.device) + 1
        return (torch.special.entr(rows).sum(dim=-1) / seen.log()).mean(dim=-1)
