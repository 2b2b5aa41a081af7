"""SnapKV's score: pooled attention of the last queries."""

from typing import Literal

import torch.nn.functional as F
from torch import Tensor

from kvbench.methods.facts import values
from kvbench.methods.scoring.window import Kernel, Window
from kvbench.prefill import LayerState
from kvbench.utils.checked import checked


@checked
class WindowAttention(Window):
    """SnapKV (Li et al. 2024, arXiv 2404.14469, §4): attention of the last w queries, summed, then pooled along
    positions.

    Pooling covers the context only, never the window. `max` pads with -inf; `avg` pads with zeros that
    count, as in the official code, so the first token's score is divided by the whole kernel.
    Groups of heads are reduced before pooling (KVCache-Factory's order; the same as kvpress's for `avg`).
    """

    short = values(window=8)

    kernel: Kernel = 7
    pooling: Literal["max", "avg"] = "max"

    def votes(self, layer: LayerState) -> Tensor:
        return layer.window_votes(self.window)

    def queries(self, layer: LayerState) -> int:
        return min(self.window, layer.n)

    @property
    def copies(self) -> bool:
        return self.pooling == "max" and self.kernel > 1

    def smooth(self, votes: Tensor) -> Tensor:
        pool = F.max_pool1d if self.pooling == "max" else F.avg_pool1d
        return pool(votes[None], self.kernel, stride=1, padding=self.kernel // 2)[0]
