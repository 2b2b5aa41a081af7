"""KNorm's score: the negative L2 norm of a key."""

from torch import Tensor

from kvbench.methods.scoring.base import Scoring
from kvbench.prefill import LayerState
from kvbench.utils.checked import NonNegative, checked


@checked
class KNorm(Scoring):
    """Negative L2 norm of a key (Devoto et al. 2024, arXiv 2406.11430), in float32.

    Keys of small norm, sinks among them, tend to receive the most attention, so the base form protects no tokens. RoPE
    does not change norms: keys before and after RoPE have the same score.

    window   last tokens that are always kept.
    """

    window: NonNegative = 0

    per_query_head = False
    signed = True

    def votes(self, layer: LayerState) -> Tensor:
        return -layer.keys.float().norm(dim=-1)
