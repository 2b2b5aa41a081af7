"""SpindleKV's score: attention of the last queries, not pooled."""

from typing import Literal

import torch
from torch import Tensor

from kvbench.methods.scoring.window import Window
from kvbench.prefill import LayerState
from kvbench.utils.checked import checked


@checked
class WindowAverage(Window):
    """SpindleKV's accumulated attention (§3.1, equations 2 and 3): the window's queries, not pooled.

    score_norm="window"    divided by the w queries of the window, as the text says; SnapKV's order.
    score_norm="printed"   divided by n - a for the key at position a, as the formula is printed: the count of
                           an all-query sum, which favours late tokens by up to n / w.
    """

    score_norm: Literal["window", "printed"] = "window"

    def votes(self, layer: LayerState) -> Tensor:
        votes = layer.window_votes(self.window)
        if self.score_norm == "window":
            return votes / self.window
        return votes / torch.arange(layer.n, 0, -1, device=votes.device)
