"""KNorm's score: the negative L2 norm of a key."""

from torch import Tensor

from kvbench.methods.scoring.base import Scoring
from kvbench.prefill import LayerState
from kvbench.utils.checked import NonNegative, checked


@checked
class KNorm(Scoring):
    """Negative L2 norm of a key (Devoto et al. 2024, arXiv 2406.11430), in float32.

    Attention tends to go to keys of small norm, sinks among them, so the base form protects nothing. RoPE keeps norms:
    keys before and after it score alike.

    window   last tokens that are always kept.
    """

    window: NonNegative = 0

    per_query_head = False
    signed = True

    def votes(self, layer: LayerState) -> Tensor:
        return -layer.keys.float().norm(dim=-1)
