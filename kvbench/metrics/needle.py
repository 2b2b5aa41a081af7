"""Needle metrics: whether the prediction contains the needle."""

import re
from functools import cache
from typing import Any

from kvbench.metrics.backends import rouge_scorer


@cache
def _scorer() -> Any:
    return rouge_scorer(["rouge1"], use_stemmer=True)


def rouge1_f(reference: str, prediction: str) -> float:
    """ROUGE-1 F-measure of `rouge-score` with stemming; the needle score of PyramidKV is ten times this."""
    return float(_scorer().score(reference, prediction)["rouge1"].fmeasure)


def rouge1_recall(reference: str, prediction: str) -> float:
    """Share of the reference's words, stemmed, that the prediction has; its other words do not lower it."""
    return float(_scorer().score(reference, prediction)["rouge1"].recall)


def first_number(number: str, prediction: str) -> float:
    """1 if the first number in the prediction is `number`, else 0: the pass key score of Mohtashami and Jaggi."""
    found = re.search(r"\d+", prediction)
    return float(found is not None and int(found[0]) == int(number))


def leading_digits(number: str, prediction: str) -> float:
    """Share of `number`'s leading digits that the best number in the prediction has right."""
    found = re.findall(r"\d+", prediction.replace(",", ""))
    return max((_agreement(number, digits) for digits in found), default=0) / len(number)


def exact_number(number: str, prediction: str) -> float:
    """1 if `number` occurs in the prediction as a number of its own, else 0."""
    return float(number in re.findall(r"\d+", prediction.replace(",", "")))


def _agreement(a: str, b: str) -> int:
    """Length of the common prefix."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
