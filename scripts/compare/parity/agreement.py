"""Counting where two implementations agree, and why they part where they do not."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

import torch
from torch import Tensor

ROUNDING = 1e-5  # relative gap of float32 scores below which only the order of summation can decide


@dataclass
class Agreement:
    """One line of the table: a released function, a dtype, a source of tensors, and how its sets compare."""

    project: str
    commit: str
    function: str
    kvbench: str
    dtype: str
    tensors: str
    unit: str = "kept sets"
    cases: int = 0  # calls of the released function
    compared: int = 0  # sets, one per stored head of every call
    equal: int = 0
    ties: int = 0  # what was exchanged has the same released score
    rounding: int = 0  # ... scores apart by float32's rounding
    dtype_rounding: int = 0  # equal to the released code on the same values in float32, up to ties and rounding
    different: int = 0
    largest_gap: float = 0.0  # relative, of those counted under ties and rounding
    overlap: float = 1.0  # smallest share of tokens in common
    note: str = ""
    examples: list[str] = field(default_factory=list)

    def tally(self, ours: Tensor, theirs: Tensor, scores: Tensor | None, example: str, exact=None) -> None:
        """Compare kept positions [heads, k]; `scores` [heads, context] are those the released code selected by.

        `exact()` gives (theirs, scores) of the released code on the same values in float32.
        """
        self.cases += 1
        reference = None
        for head, (mine, other) in enumerate(zip(ours, theirs, strict=True)):
            self.compared += 1
            verdict, gap = part(mine, other, None if scores is None else scores[head])
            if verdict == "different" and exact is not None:
                reference = reference or exact()
                again, _ = part(mine, reference[0][head], reference[1][head])
                verdict = "different" if again == "different" else "dtype_rounding"
            setattr(self, verdict, getattr(self, verdict) + 1)
            if verdict in ("ties", "rounding"):
                self.largest_gap = max(self.largest_gap, gap)
            if verdict != "equal":
                self.overlap = min(self.overlap, share(mine, other))
            if verdict == "different" and len(self.examples) < 5:
                self.examples.append(f"{example}, head {head}: {len(mine)} and {len(other)} tokens, gap {gap:.1e}")

    def near(
        self, ours: Tensor, theirs: Tensor, scale: Tensor | float, example: str, tied: Tensor | None = None
    ) -> None:
        """Compare numbers, which may differ by float32's rounding of numbers as large as `scale`. Where `tied`, a
        number half-way between two codes, rounding decides, and they may differ by a step."""
        gap = ((ours - theirs).abs() / scale).expand(ours.shape)
        apart = gap > ROUNDING
        ties = torch.zeros_like(apart) if tied is None else apart & tied
        apart = apart & ~ties
        self.cases += 1
        self.compared += gap.numel()
        self.equal += int((gap == 0).sum())
        self.ties += int(ties.sum())
        self.rounding += int(((gap > 0) & (gap <= ROUNDING)).sum())
        self.different += int(apart.sum())
        within = gap.masked_fill(gap > ROUNDING, 0)
        self.largest_gap = max(self.largest_gap, float(within.max()) if gap.numel() else 0.0)
        if apart.any() and len(self.examples) < 5:
            self.examples.append(f"{example}: {int(apart.sum())} of {gap.numel()}, up to {float(gap.max()):.1e}")


def part(ours: Tensor, theirs: Tensor, scores: Tensor | None) -> tuple[str, float]:
    """Why two kept sets part, and the relative gap of the scores of the tokens exchanged."""
    mine, other = set(ours.tolist()), set(theirs.tolist())
    if mine == other and len(ours) == len(theirs) == len(mine):
        return "equal", 0.0
    exchanged = sorted(mine ^ other)
    if scores is None or len(mine) != len(other) or not exchanged or exchanged[-1] >= len(scores):
        return "different", float("inf")
    values = scores[exchanged].double()
    gap = float((values.max() - values.min()) / values.abs().max().clamp_min(1e-300))
    if gap == 0:
        return "ties", gap
    return ("rounding" if gap <= ROUNDING and scores.dtype == torch.float32 else "different"), gap


def share(ours: Tensor, theirs: Tensor) -> float:
    mine, other = set(ours.tolist()), set(theirs.tolist())
    return len(mine & other) / max(len(mine | other), 1)


@contextmanager
def recorded_topk() -> Iterator[list[Tensor]]:
    """The scores that calls of `torch.topk` select by, while the context lasts."""
    originals, seen = (torch.topk, torch.Tensor.topk), []

    def topk(scores, *args, **kwargs):
        seen.append(scores.detach().clone())
        return originals[1](scores, *args, **kwargs)

    torch.topk = torch.Tensor.topk = topk
    try:
        yield seen
    finally:
        torch.topk, torch.Tensor.topk = originals
