"""TOVA's score: attention of the last query."""

from torch import Tensor

from kvbench.methods.scoring.base import Scoring
from kvbench.prefill import LayerState, Needs
from kvbench.utils.checked import checked


@checked
class LastQuery(Scoring):
    """Attention of the prompt's last token to all tokens, itself included; none is protected (Oren et al. 2024)."""

    needs = Needs(window=1)

    def protected(self, budget: int) -> int:
        return 0

    def votes(self, layer: LayerState) -> Tensor:
        return layer.window_votes(1)
