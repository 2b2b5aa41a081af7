"""CAKE's score: attention of the last queries, and its variance over these queries."""

from typing import Literal

from torch import Tensor

from kvbench.methods.scoring.window import Kernel
from kvbench.methods.snapkv import WindowAttention
from kvbench.prefill import LayerState
from kvbench.utils.checked import Number, checked


@checked
class MeanVariance(WindowAttention):
    """CAKE (Qin et al. 2025, arXiv 2503.12491): mean + gamma · variance of the last w queries' attention, pooled.

    The variance divides by w - 1, as in the released code; with one query it is 0.
    """

    kernel: Kernel = 5
    pooling: Literal["max", "avg"] = "avg"
    gamma: Number = 200.0

    def votes(self, layer: LayerState) -> Tensor:
        moments = layer.window_moments(self.window)
        return moments.mean + self.gamma * moments.variance

    def queries(self, layer: LayerState) -> int:
        return 1
