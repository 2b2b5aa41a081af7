"""Was the needle found?"""

import re
from functools import cache

from rouge_score.rouge_scorer import RougeScorer


@cache
def _scorer() -> RougeScorer:
    return RougeScorer(["rouge1"], use_stemmer=False)


def rouge1_f(reference: str, prediction: str) -> float:
    """ROUGE-1 F-measure of `rouge-score` without stemming; PyramidKV's needle score is ten times this."""
    return _scorer().score(reference, prediction)["rouge1"].fmeasure


def leading_digits(number: str, prediction: str) -> float:
    """Share of `number`'s leading digits that the best number in the prediction has right."""
    found = re.findall(r"\d+", prediction.replace(",", ""))
    return max((_agreement(number, digits) for digits in found), default=0) / len(number)


def exact_number(number: str, prediction: str) -> float:
    """1 if `number` stands in the prediction as a whole number of its own, else 0."""
    return float(number in re.findall(r"\d+", prediction.replace(",", "")))


def _agreement(a: str, b: str) -> int:
    """Length of the common prefix."""
    return next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
