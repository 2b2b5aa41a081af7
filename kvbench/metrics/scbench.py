"""SCBench's metrics (microsoft/MInference at fb56c91, scbench/compute_scores.py), and the same without two mistakes.

For some tasks the official code passes a label that is a text to a function that expects a list of texts, which then
compares with each character of the label: a perfect answer of L characters to qa_chn scores 2 / (L + 1), and nearly any
answer to many_shot is right. Labels that are lists are compared as they should be. vt's share is rounded to 2 digits
for each sample. `mended` scores are without these mistakes. Choices, Chinese answers, pass keys and summaries are
scored by InfiniteBench's functions, which SCBench's code also has.
"""

import re
from collections.abc import Callable, Sequence

from kvbench.metrics.infinitebench import check_number, choice, first_integer, qa_f1_zh, rouge_l_sum
from kvbench.metrics.longbench import english_words

Metric = Callable[[str, Sequence[str]], float]

_NUMBER = re.compile(r"\d+\.\d+|\d+")
_LETTER = re.compile(r"\(([^)]*)\)")


def score(kind: str, prediction: str, answers: Sequence[str], listed: bool = False) -> dict[str, float]:
    """The official and the mended score of a prediction, both in [0, 1]; `kind` is a task or a mixed task's part.

    listed  whether the data have a list of answers, not a text.
    """
    compared = list(answers[0]) if kind in BY_CHARACTER and not listed else answers
    official = float(METRICS[kind](prediction, compared))
    mended = float(MENDED[kind](prediction, answers)) if kind in MENDED else official
    return {"official": official, "mended": mended}


def check_answers(kind: str, answers: Sequence[str]) -> None:
    """Raise ValueError for answers that the kind's metric cannot read: mf's must be a number."""
    if METRICS[kind] is first_number:
        check_number(answers[0])


def substring(prediction: str, answers: Sequence[str]) -> bool:
    """Whether any answer occurs verbatim in the prediction."""
    return any(answer in prediction for answer in answers)


def any_case(prediction: str, answers: Sequence[str]) -> bool:
    """Whether any answer occurs in the prediction, ignoring case."""
    return any(answer.upper() in prediction.strip().upper() for answer in answers)


def names_found(prediction: str, answers: Sequence[str]) -> float:
    """Share of the answers that occur in the prediction, ignoring case."""
    return sum(answer.lower() in prediction.lower() for answer in answers) / len(answers)


def first_number(prediction: str, answers: Sequence[str]) -> bool:
    """Whether the first number is the answer; for an integer answer, the number without its decimals."""
    match = _NUMBER.search(prediction)
    if match is None:
        return False
    number = float(match[0])
    return (int(number) if re.fullmatch(r"-?\d+", answers[0]) else number) == float(answers[0])


def letter_or_text(prediction: str, answers: Sequence[str]) -> bool:
    """Whether the prediction has an answer "(A) text": its first letter in parentheses, or without one the text."""
    return any(_chosen(prediction, answer) for answer in answers)


def _chosen(prediction: str, answer: str) -> bool:
    chosen, letter = _LETTER.search(prediction), _LETTER.search(answer)
    if chosen and letter:
        return chosen[1] == letter[1]
    text = answer[letter.end() :] if letter and answer.startswith("(") else answer
    words = english_words(text)
    return bool(words) and " ".join(words) in " ".join(english_words(prediction))


METRICS: dict[str, Metric] = {
    "kv": substring,
    "prefix_suffix": substring,
    "vt": lambda prediction, answers: round(names_found(prediction, answers), 2),
    "qa_eng": any_case,
    "qa_chn": qa_f1_zh,
    "choice_eng": choice,
    "many_shot": any_case,
    "mf": first_number,
    "summary": rouge_l_sum,
    "passkey": first_integer,
}
BY_CHARACTER = ("qa_chn", "many_shot")  # kinds whose official function takes a text for a list of its characters
MENDED: dict[str, Metric] = {"vt": names_found, "qa_chn": qa_f1_zh, "many_shot": letter_or_text}
