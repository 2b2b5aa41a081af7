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

    score_norm="window"    divided by the window's w queries, as in the text; the order of tokens is SnapKV's.
    score_norm="printed"   divided by n - a for the key at position a, as in the printed formula, whose divisor suits a
                           sum over all queries; it favours late tokens by up to n / w.
    """

    score_norm: Literal["window", "printed"] = "window"

    def votes(self, layer: LayerState) -> Tensor:
        votes = layer.window_votes(self.window)
        if self.score_norm == "window":
            return votes / self.window
        return votes / torch.arange(layer.n, 0, -1, device=votes.device)
