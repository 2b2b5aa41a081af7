"""CriticalKV: half of the budget by attention, half by a token's contribution to the output."""

from dataclasses import field

import torch
from torch import Tensor

from kvbench.errors import UserError
from kvbench.methods.scoring.base import Scoring
from kvbench.methods.scoring.over import OverScoring
from kvbench.methods.selection import ranking, reduce_group
from kvbench.methods.snapkv import WindowAttention
from kvbench.prefill import LayerState, Needs
from kvbench.utils.checked import Fraction, PositiveNumber, checked


@checked
class CriticalKV(OverScoring):
    """CriticalKV (Feng et al. 2025, arXiv 2502.03805): two stages over the scores of `base`.

    The first stage keeps first_stage·B tokens (rounded down) of a head's budget B: those with the best scores S, the
    window among them. The second stage fills the budget by (S + epsilon)·u, where u = ‖v W_o‖₁ is the L1 norm of the
    token's value after the output projection, averaged over the query heads that share it. If head budgets guarantee
    each head some tokens, these count as first stage, as in the authors' code. Stages are sets of tokens, so the scores
    of tokens that always stay are not multiplied; the released code multiplies the window's scores, too.

    base      the scoring that gives S, which must not be negative. Expected Attention's scores have the value's
              norm in them, which counts beside u unless value_norm=false.
    epsilon   added once for each query that S sums over.
    """

    base: Scoring = field(default_factory=WindowAttention)
    first_stage: Fraction = 0.5
    epsilon: PositiveNumber = 1e-4

    orders_by_scores = while_decoding = False

    def __post_init__(self) -> None:
        if self.base.signed:
            raise UserError(
                f"{type(self.base).__name__} has negative scores: CriticalKV multiplies scores by norms, which would "
                "reverse their order"
            )
        if not self.base.orders_by_scores:
            raise UserError(
                f"{type(self.base).__name__} does not choose by one score of each token, which CriticalKV could "
                "multiply: base must be another scoring"
            )
        super().__post_init__()
        self.needs |= Needs(value_output_norm=True)

    def order(
        self, order: Tensor, scores: Tensor, counts: int | Tensor, window: int, sure: int, layer: LayerState
    ) -> Tensor:
        if isinstance(counts, int):
            first = max(int(self.first_stage * (counts + window) + 1e-9) - window, sure)  # 1e-9: float noise
        else:
            stage = ((counts + window).double() * self.first_stage + 1e-9).long() - window
            first = stage.clamp(min=sure)[:, None]
        heads, length = scores.shape
        assert layer.value_output_norm is not None, "it is in `needs`"
        norms = reduce_group(layer.value_output_norm[:, :length], heads, "mean")
        weighted = (scores + self.epsilon * self.base.queries(layer)) * norms
        places = torch.arange(length, device=scores.device).expand_as(order)
        ranks = torch.empty_like(order).scatter_(1, order, places)
        return ranking(weighted.masked_fill_((ranks < first) | scores.isposinf(), float("inf")))
