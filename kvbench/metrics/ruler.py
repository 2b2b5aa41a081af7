"""RULER's official metrics (github.com/NVIDIA/RULER at c3f5e3b, scripts/eval), for one sample."""

import re
from collections.abc import Sequence

from kvbench.errors import UserError

CONTROL = re.compile(r"[\x00-\x1f]")


def clean(prediction: str) -> str:
    """A prediction as the official code scores it: stripped, with line ends instead of control characters."""
    return CONTROL.sub("\n", prediction.strip()).strip()


def string_match_all(prediction: str, answers: Sequence[str]) -> float:
    """Share of the answers that occur in the cleaned prediction, ignoring case."""
    return sum(_contained(prediction, answers)) / len(answers)


def string_match_part(prediction: str, answers: Sequence[str]) -> float:
    """1 if any of the answers occurs in the cleaned prediction, ignoring case, else 0."""
    return float(any(_contained(prediction, answers)))


def _contained(prediction: str, answers: Sequence[str]) -> list[bool]:
    if not answers:
        raise UserError("a RULER sample has no answers to look for")
    text = clean(prediction).lower()
    return [answer.lower() in text for answer in answers]
