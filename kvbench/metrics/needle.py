"""Needle metrics: whether the prediction contains the needle."""

import re

from kvbench.metrics.backends import google_rouge
from kvbench.utils.sequences import common_prefix

# A number with commas between its thousands; a comma between whole numbers separates them.
_THOUSANDS = re.compile(r"(?<!\d)\d{1,3}(?:,\d{3})+(?!\d)")


def rouge1_f(reference: str, prediction: str) -> float:
    """ROUGE-1 F-measure of `rouge-score` with stemming; the needle score of PyramidKV is ten times this."""
    return float(google_rouge("rouge1", prediction, reference, stemmer=True).fmeasure)


def rouge1_recall(reference: str, prediction: str) -> float:
    """Share of the reference's words, stemmed, that are in the prediction."""
    return float(google_rouge("rouge1", prediction, reference, stemmer=True).recall)


def first_number(number: str, prediction: str) -> float:
    """1 if the first number in the prediction is `number`, else 0: the pass key score of Mohtashami and Jaggi."""
    first = re.search(r"\d+", prediction)
    # digit by digit: Python reads no number of more than 4,300 digits, which an answer that repeats itself can have
    return float(first is not None and _value(first[0]) == _value(number))


def leading_digits(number: str, prediction: str) -> float:
    """The largest share of `number`'s digits, from the first on, that a number in the prediction has."""
    return max((common_prefix(number, digits) for digits in _numbers(prediction)), default=0) / len(number)


def exact_number(number: str, prediction: str) -> float:
    """1 if `number` occurs in the prediction as a separate number, else 0."""
    return float(number in _numbers(prediction))


def _value(digits: str) -> str:
    """A number's ASCII digits without leading zeros."""
    return "".join(str(int(digit)) for digit in digits).lstrip("0")


def _numbers(prediction: str) -> list[str]:
    """The digits of each number: of "7,481,925" one number, of "1234567,7654321" two."""
    return re.findall(r"\d+", _THOUSANDS.sub(lambda match: match[0].replace(",", ""), prediction))
