"""Scores that users' functions return: any one number, from 0 to 1 but for rounding."""

from typing import SupportsFloat

ROUNDING = 1e-6  # of float32, in which the cosine of a vector with itself may be 1.0000001
SHOWN = 80  # characters


def number(value: object) -> float | None:
    """A number of Python, NumPy or torch, or a truth value, as a float; None for anything else."""
    if not isinstance(value, SupportsFloat):
        return None
    try:
        return float(value)
    except (TypeError, ValueError, RuntimeError, OverflowError):  # an array or a tensor of several numbers
        return None


def without_rounding(score: float) -> float:
    """A score that rounding put below 0 or above 1, as 0 or 1; any other one as it is."""
    if -ROUNDING <= score < 0:
        return 0.0
    return 1.0 if 1 < score <= 1 + ROUNDING else score


def shown(value: object) -> str:
    """What was returned in the place of a score, in one line."""
    text = " ".join(repr(value).split())
    return text if len(text) <= SHOWN else f"{text[:SHOWN]}…"
