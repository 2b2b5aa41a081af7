"""NoLiMa's metrics, by their names in adobe-research/NoLiMa at 7532e4e, and the figures that its paper derives."""

from collections.abc import Mapping, Sequence

SHORT = (250, 500, 1000)  # the lengths of the base score
KEPT = 0.85  # share of the base score that a length needs to be effective


def contains(prediction: str, golds: Sequence[str]) -> float:
    """1 if any right answer occurs verbatim in the prediction, else 0."""
    return float(any(gold in prediction for gold in golds))


def lastline_contains(prediction: str, golds: Sequence[str]) -> float:
    """1 if any right answer occurs verbatim in the prediction's last line, after the reasoning, else 0."""
    return contains(prediction.strip().split("\n")[-1], golds)


METRICS = {"contains": contains, "lastline_contains": lastline_contains}


def base_score(means: Mapping[str, Mapping[int, float]]) -> float:
    """The mean over tests of the best of their means at SHORT lengths; `means` is by test and length."""
    return sum(max(by_length[length] for length in SHORT) for by_length in means.values()) / len(means)


def effective_length(by_length: Mapping[int, float], base: float) -> int | None:
    """The longest length of at least 1000 tokens with at least 85 % of the base score; None: there is none.

    No length is effective where nothing is found at any, though 0 is 85 % of 0.
    """
    lengths = [length for length, score in by_length.items() if length >= SHORT[-1] and 0 < score >= KEPT * base]
    return max(lengths, default=None)
