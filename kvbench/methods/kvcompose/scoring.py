"""KVCompose's score: how much attention a token gets while the model reads the context a second time."""

from torch import Tensor

from kvbench.methods.scoring.base import Scoring
from kvbench.prefill import LayerState, Needs, Reconstruction
from kvbench.utils.checked import NonNegative, checked

WHOLE = 2**40  # tokens: the context is read again in one piece


@checked
class KVCompose(Scoring):
    """The most attention that any query of a second pass over the context gives (Akulov et al. 2025, arXiv 2509.05165).

    The context is read again behind itself, in one piece and without a request. A token has the largest weight that any
    of these queries gives it, averaged over the query heads of its group, plus the mean of this over the layer's heads.
    What follows the context always stays. Source: KVComposePress in kvpress, with its defaults.

    sinks   first tokens that always stay where a prompt has no chat template or BOS token before its context.
    """

    sinks: NonNegative = 0

    per_query_head = False

    def __post_init__(self) -> None:
        self._how = Reconstruction(WHOLE, 0, self.sinks, None, "mean")
        self.needs = Needs(reconstructions=frozenset([self._how]))

    def protected(self, budget: int) -> int:
        return 0

    def votes(self, layer: LayerState) -> Tensor:
        scores = layer.reconstruction[self._how].scores
        return scores + scores.mean(dim=0)

    def least(self, layer: LayerState) -> int:
        return layer.reconstruction[self._how].outside
