"""SCBench's metrics (microsoft/MInference at fb56c91, scbench/compute_scores.py), and the same without two mistakes.

Where the official code gives a function the label as a text, but the function expects a list of texts, it compares
with each character of the label: a perfect answer of L characters to qa_chn scores 2 / (L + 1), and to many_shot nearly
any answer is right. vt's share is rounded to 2 digits for each sample. `mended` scores have neither.
"""

import re
import string
from collections.abc import Callable, Sequence
from functools import cache

from rouge_score.rouge_scorer import RougeScorer

from kvbench.metrics.longbench import CHINESE_PUNCTUATION, english_words, f1

Metric = Callable[[str, Sequence[str]], float]

# InfiniteBench's set of Chinese punctuation, which leaves out what LongBench's has beside it.
_PUNCTUATION = str.maketrans("", "", string.punctuation + CHINESE_PUNCTUATION)
_NUMBER = re.compile(r"\d+\.\d+|\d+")
_DIGITS = re.compile("[0-9]+")
_LETTER = re.compile(r"\(([^)]*)\)")
_CHOICE_MARKS = str.maketrans({mark: " " for mark in "\n\"'.,?!{}"})
_CHOICE_LEADS = ("answer is:", "answer:", "answer is", "option is")


def score(kind: str, prediction: str, answers: Sequence[str]) -> dict[str, float]:
    """The official and the mended score of a prediction, both in [0, 1]; `kind` is a task or a mixed task's part."""
    official = float(METRICS[kind](prediction, answers))
    mended = float(MENDED[kind](prediction, answers)) if kind in MENDED else official
    return {"official": official, "mended": mended}


def substring(prediction: str, answers: Sequence[str]) -> bool:
    """Whether the answer stands in the prediction as it is."""
    return answers[0] in prediction


def any_case(prediction: str, answers: Sequence[str]) -> bool:
    """Whether any answer stands in the prediction, whatever the case."""
    return any(answer.upper() in prediction.strip().upper() for answer in answers)


def names_found(prediction: str, answers: Sequence[str]) -> float:
    """Share of the answers that stand in the prediction, whatever the case."""
    return sum(answer.lower() in prediction.lower() for answer in answers) / len(answers)


def characters_f1(prediction: str, answers: Sequence[str]) -> float:
    """The best F1 of characters in lower case, without punctuation and blanks."""
    return max(f1(_characters(prediction), _characters(answer)) for answer in answers)


def choice(prediction: str, answers: Sequence[str]) -> bool:
    """Whether the prediction chooses the text answers[0] or its letter answers[1].

    In this order: a first character A to D; the whole prediction; what follows a lead such as "answer is"; the first
    word that is a part of "ABCD".
    """
    prediction = prediction.strip()
    if not prediction:
        return False
    if prediction[0] in "ABCD":
        return prediction[0] in answers
    if prediction in answers:
        return True
    text = re.sub(" +", " ", prediction.translate(_CHOICE_MARKS))
    for lead in _CHOICE_LEADS:
        _, found, after = text.partition(lead)
        if found:
            return len(after) > 0 and after[1:].startswith(tuple(answers))
    word = next((word for word in text.split() if word in "ABCD"), None)
    return word in answers


def first_number(prediction: str, answers: Sequence[str]) -> bool:
    """Whether the first number is the answer; of a whole answer, the number without its decimals."""
    found = _NUMBER.search(prediction)
    if found is None:
        return False
    number = float(found[0])
    return (int(number) if re.fullmatch(r"-?\d+", answers[0]) else number) == float(answers[0])


def first_digits(prediction: str, answers: Sequence[str]) -> bool:
    """Whether the first run of digits is the answer."""
    found = _DIGITS.search(prediction)
    return (found[0] if found else "") == answers[0]


def rouge_lsum(prediction: str, answers: Sequence[str]) -> float:
    """ROUGE-Lsum F-measure of `rouge-score` without stemming, as the package `evaluate` computes it."""
    return _rouge().score(answers[0], prediction)["rougeLsum"].fmeasure


def letter_or_text(prediction: str, answers: Sequence[str]) -> bool:
    """Whether the prediction has the answer "(A) text": its first letter in parentheses, or without one the text."""
    (answer,) = answers
    chosen, letter = _LETTER.search(prediction), _LETTER.search(answer)
    if chosen and letter:
        return chosen[1] == letter[1]
    text = answer[letter.end() :] if letter and answer.startswith("(") else answer
    words = english_words(text)
    return bool(words) and " ".join(words) in " ".join(english_words(prediction))


def _characters(text: str) -> list[str]:
    return list("".join(text.lower().translate(_PUNCTUATION).split()))


@cache
def _rouge() -> RougeScorer:
    return RougeScorer(["rougeLsum"], use_stemmer=False)


METRICS: dict[str, Metric] = {
    "kv": substring,
    "prefix_suffix": substring,
    "vt": lambda prediction, answers: round(names_found(prediction, answers), 2),
    "qa_eng": any_case,
    "qa_chn": lambda prediction, answers: characters_f1(prediction, list(answers[0])),
    "choice_eng": choice,
    "many_shot": lambda prediction, answers: any_case(prediction, list(answers[0])),
    "mf": first_number,
    "summary": rouge_lsum,
    "passkey": first_digits,
}
MENDED: dict[str, Metric] = {"vt": names_found, "qa_chn": characters_f1, "many_shot": letter_or_text}
