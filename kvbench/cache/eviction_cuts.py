"""Cuts of evictions that rounding could move: the last kept score and the first dropped score."""

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

# The largest change of the gap between two scores at a cut under other kernels, in units of eps of the model's dtype
# times the score, as measured by measure_cut_rounding.py (results/benchmarks/cut_rounding.json). Scores of a float64
# model are float32, too. float16 was not measured and has bfloat16's number.
CUT_NOISE = {torch.float64: 1.02e11, torch.float32: 190.0, torch.bfloat16: 102.0, torch.float16: 102.0}


@dataclass(frozen=True)
class Cuts:
    """The scores [heads, 2] on both sides of each head's cut in one layer: the last kept and the first dropped score.

    They stay on their device until a record is made.
    """

    scores: Tensor
    dtype: torch.dtype  # of the model
    pooled: bool  # whether equal scores are copies of one score, which rounding cannot separate

    @classmethod
    def from_ranked(cls, ranked: Tensor, kept: int | Tensor, dtype: torch.dtype, pooled: bool) -> "Cuts | None":
        """The cuts after the first `kept` of scores ranked [heads, len], each row in descending order.

        `kept` is one number for all heads, or int64 [heads]. A head that keeps all tokens or none has no cut.
        """
        most = ranked.shape[1]
        if isinstance(kept, int):
            return cls(ranked[:, kept - 1 : kept + 1].clone(), dtype, pooled) if 0 < kept < most else None
        if most < 2:
            return None
        places = torch.stack([kept - 1, kept], dim=1)
        scores = ranked.gather(1, places.clamp(0, most - 1))
        none = (places < 0) | (places >= most)
        return cls(scores.masked_fill(none.any(dim=1, keepdim=True), float("nan")), dtype, pooled)

    def close(self) -> Tensor:
        """The number of heads in which rounding could swap the tokens at the cut: int64, on the device."""
        kept, dropped = self.scores.double().unbind(dim=1)
        noise = CUT_NOISE[self.dtype] * torch.finfo(self.dtype).eps
        gap = kept - dropped
        close = (gap <= noise * kept.abs()) & kept.isfinite() & dropped.isfinite()
        return (close & (gap > 0) if self.pooled else close).sum()


def close_cuts(layers: Sequence[Cuts | None]) -> int | None:
    """The number of cuts in all layers and heads at which rounding could keep another token; None without cuts."""
    counts = [cuts.close().cpu() for cuts in layers if cuts is not None]
    return int(torch.stack(counts).sum()) if counts else None
