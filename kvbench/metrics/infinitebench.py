"""InfiniteBench's official metrics (github.com/OpenBMB/InfiniteBench at 88b3daa, src/compute_scores.py).

Each metric is a function of a prediction and the task's answers, in [0, 1]. Oddities are the official code's.
"""

import json
import math
import re
from collections.abc import Callable, Sequence

from kvbench.errors import unknown
from kvbench.metrics.backends import google_rouge
from kvbench.metrics.longbench import chinese_characters, english_words, f1

Metric = Callable[[str, Sequence[str]], float]

_NUMBER = re.compile(r"\d+\.\d+|\d+")
_DIGITS = re.compile("[0-9]+")
_LETTERS = "ABCD"
_MARKS = "\n:\"'.,?!{}"  # between words
# The words before a choice. The first of these that occurs anywhere in the answer counts.
_CHOICE_PREFIXES = ("answer is:", "answer:", "answer is", "option is")
_DEBUG_PREFIXES = ("answer is:", "is:", "answer:", "correct option is:")


def score(task: str, prediction: str, answers: Sequence[str]) -> float:
    """The official score of a prediction as generated.

    `answers` are the accepted texts; of a choice its text and letter; of math_calc its list of values as JSON.
    Raises UserError for an unknown task.
    """
    if task not in METRICS:
        raise unknown("InfiniteBench task", task, METRICS)
    return float(METRICS[task](prediction, answers))


def check_answers(task: str, answers: Sequence[str]) -> None:
    """Raise ValueError for answers that the task's metric cannot read: texts in numeric tasks, and empty lists."""
    if METRICS[task] in (first_number, last_integer):
        check_number(answers[0], integer=METRICS[task] is last_integer)
    if METRICS[task] is values and not json.loads(answers[0]):
        raise ValueError("field 'answer' has an empty list of values")


def check_number(answer: str, integer: bool = False) -> None:
    """Raise ValueError for an answer that is no finite number, or no integer."""
    try:
        value: float = int(answer) if integer else float(answer)
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"answer is {answer[:40]!r}, not {'an integer' if integer else 'a number'}")


def first_integer(prediction: str, answers: Sequence[str]) -> bool:
    """Whether the first digits in the prediction are the answer's."""
    digits = _DIGITS.search(prediction)
    return (digits[0] if digits else "") == answers[0]


def word(prediction: str, answers: Sequence[str]) -> bool:
    """Whether the answer is one of the prediction's words."""
    return answers[0] in _blanked(prediction, _MARKS).split()


def name(prediction: str, answers: Sequence[str]) -> bool:
    """Whether the first answer, a name in capitals, is one of the prediction's words in capitals.

    A name of several words never is.
    """
    return answers[0] in [text.upper() for text in _blanked(prediction, _MARKS).split()]


def last_integer(prediction: str, answers: Sequence[str]) -> bool:
    """Whether the prediction's last word is the answer as an integer."""
    words = _blanked(prediction, "\n.`'\":").split()
    try:
        return int(words[-1]) == int(answers[0])
    except (IndexError, ValueError):
        return False


def first_number(prediction: str, answers: Sequence[str]) -> bool:
    """Whether the prediction's first number, without a sign, is the answer.

    A fraction where the answer is an integer is wrong; the official code raises there.
    """
    number = _NUMBER.search(prediction)
    if number is None or ("." in number[0] and "." not in answers[0]):
        return False
    return float(number[0]) == float(answers[0])


def values(prediction: str, answers: Sequence[str]) -> float:
    """Share of the values, from the first on, that the prediction lists without a mistake; signs are not read."""
    expected = json.loads(answers[0])
    right = 0
    for value, listed in zip(expected, _DIGITS.findall(prediction), strict=False):
        if str(value) != (listed.lstrip("0") or "0"):
            break
        right += 1
    return right / len(expected)


def choice(prediction: str, answers: Sequence[str]) -> bool:
    """Whether the prediction chooses the option with this text and letter.

    It chooses by its first character if that is A to D; by its whole text; by the words after the announcement of an
    answer; or else by its first word among A, B, C, D and the substrings of "ABCD".
    """
    text = prediction.strip()
    if not text:
        return False
    if text[0] in _LETTERS:
        return text[0] in answers
    if text in answers:
        return True
    text = _single_blanks(_blanked(text, "\n\"'.,?!{}"))
    announced = _announced(text, _CHOICE_PREFIXES)
    if announced is not None:
        return announced.startswith(tuple(answers))
    return next((letters in answers for letters in text.split() if letters in _LETTERS), False)


def debug(prediction: str, answers: Sequence[str]) -> bool:
    """Whether the prediction begins with the option's letter and a mark, or announces its letter or its function."""
    function, letter = answers
    text = prediction.strip()
    if text[:2] in (f"{letter}.", f"{letter}:"):
        return True
    text = _blanked(text, "\n`'\"-*")
    text = _single_blanks(text.replace("Option", " ").replace("option", " "))
    announced = _announced(text, _DEBUG_PREFIXES)
    return announced is not None and announced.startswith((letter, function))


def qa_f1(prediction: str, answers: Sequence[str]) -> float:
    """The best F1 of words over the answers."""
    return max(f1(english_words(prediction), english_words(answer)) for answer in answers)


def qa_f1_zh(prediction: str, answers: Sequence[str]) -> float:
    """The best F1 of characters over the answers."""
    return max(f1(chinese_characters(prediction), chinese_characters(answer)) for answer in answers)


def rouge_l_sum(prediction: str, answers: Sequence[str]) -> float:
    """ROUGE-L of summaries (Google's rougeLsum without stemming), the best over the answers."""
    return max(float(google_rouge("rougeLsum", prediction, answer).fmeasure) for answer in answers)


def _blanked(text: str, marks: str) -> str:
    return text.translate(str.maketrans(marks, " " * len(marks)))


def _single_blanks(text: str) -> str:
    return re.sub(" {2,}", " ", text)


def _announced(text: str, prefixes: Sequence[str]) -> str | None:
    """The text after the first of `prefixes` that occurs, without the character after it; None where none occurs."""
    return next((text.partition(prefix)[2][1:] for prefix in prefixes if prefix in text), None)


METRICS: dict[str, Metric] = {
    "passkey": first_integer,
    "number_string": first_integer,
    "kv_retrieval": word,
    "longbook_sum_eng": rouge_l_sum,
    "longbook_choice_eng": choice,
    "longbook_qa_eng": qa_f1,
    "longbook_qa_chn": qa_f1_zh,
    "longdialogue_qa_eng": name,
    "math_find": first_number,
    "math_calc": values,
    "code_run": last_integer,
    "code_debug": debug,
}
