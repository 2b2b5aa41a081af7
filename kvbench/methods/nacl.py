"""NACL's score: most tokens by the attention of proxy tokens, the other tokens at random."""

import numpy
import torch
from torch import Tensor

from kvbench.methods.facts import values
from kvbench.methods.scoring.window import Window
from kvbench.prefill import LayerState
from kvbench.utils.checked import Fraction, NonNegative, checked


@checked
class NACL(Window):
    """Proxy-tokens eviction with random eviction (Chen et al. 2024, arXiv 2408.03675, §4).

    Proxies are the last `window` queries, whose tokens are always kept. The tokens with the largest summed attention of
    the proxies are kept, too. `random_share` of a head's tokens between sinks and window are drawn from the rest,
    without replacement, with probability softmax(summed attention). Each head of each layer draws separately, by taking
    the largest sums of attention and Gumbel noise. The noise is made on the CPU from (seed, layer, n).

    sinks          first tokens that always stay.
    random_share   7 of 19 in the released code, which keeps 12 % of the prompt by attention and 7 % at random.
    """

    short = values(window=8)

    sinks: NonNegative = 4
    random_share: Fraction = 7 / 19
    seed: NonNegative = 0

    orders_by_scores = False
    while_decoding = False  # one eviction, at the end of the prompt

    def votes(self, layer: LayerState) -> Tensor:
        return self.keep_sinks(layer.window_votes(self.window))

    def queries(self, layer: LayerState) -> int:
        return min(self.window, layer.n)

    def order(
        self, order: Tensor, scores: Tensor, counts: int | Tensor, window: int, sure: int, layer: LayerState
    ) -> Tensor:
        generator = numpy.random.default_rng([self.seed, layer.index, layer.n])
        noise = torch.from_numpy(generator.gumbel(size=tuple(scores.shape))).to(scores.device)
        tokens = torch.as_tensor(counts, device=order.device).expand(len(order))
        drawn = ((tokens - self.sinks).clamp(min=0) * self.random_share).long()
        fixed = (tokens - drawn).clamp(min=sure)[:, None]
        places = torch.arange(order.shape[1], device=order.device)
        keys = (scores.double() + noise).gather(1, order).masked_fill_(places < fixed, float("inf"))
        return order.gather(1, keys.sort(dim=1, descending=True, stable=True).indices)
