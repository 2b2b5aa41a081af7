"""Metrics for the user's own prompts, by name: a prediction against each accepted answer, in [0, 1].

A plug-in's metric has a name too, and is called like a user's function.
"""

import pkgutil
import re
from collections.abc import Callable, Sequence
from functools import cache
from inspect import signature
from typing import NamedTuple

from kvbench.errors import UserError, unknown
from kvbench.metrics.backends import google_rouge
from kvbench.metrics.given_scores import number, shown, without_rounding
from kvbench.metrics.longbench import english_words, f1
from kvbench.metrics.thinking import answer_part, never_ends
from kvbench.utils.imported_files import imported_hash
from kvbench.utils.own_code import own_line
from kvbench.utils.plugins import declared
from kvbench.utils.strangers import from_stranger
from kvbench.utils.text import in_one_line

Metric = Callable[[str, Sequence[str]], float]
OfAnswer = Callable[[str, str], float]  # of a prediction and one answer

# Marks around a letter, LaTeX's commands among them: "**B**", "__B__", "$\boxed{B}$".
_MARKS = r"(?:\\(?:boxed|(?:text|math)(?:bf|rm)?)(?=\{)|[\W_])*"
# A letter after an announced answer; A and I before a word are an article and a pronoun, except in "answer is A" and
# "answer is option A". The s of "answer's" is no letter.
_NAMED = re.compile(
    r"\banswer\b(?:(?: is|['’]s)\b(?: (?:option|choice)\b)?|(?!['’]s\b)):?"
    rf"{_MARKS}([B-HJ-Z]|(?:(?<= is )|(?<=['’]s )|(?<= option )|(?<= choice ))(?-i:A)|[AI](?![^\S\n]+[A-Z]))"
    r"(?!['’-]?[A-Z])",
    re.IGNORECASE,
)
# A letter before a mark, in emphasis or not, or alone on its line whatever marks are around it: "(B)", "**B**. Paris".
_LEADING = re.compile(rf"{_MARKS}([A-Za-z])(?:[*_`]*\s*[).:,\]}}）。：，、】]|[\W_]*(?:\n|$))")
# Thai, Lao, Burmese, Khmer, Chinese and Japanese have no blanks between words, and Korean none before a particle.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3005-\u3007\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\uf900-\ufaff"
    "\uff66-\uff9f\U00020000-\U0003ffff]"
)
_EAST_ASIAN_MARKS = re.compile("[\u3000-\u3003\u3008-\u3020\u3030\uff01-\uff0f\uff1a-\uff20\uff3b-\uff40\uff5b-\uff65]")


def words(text: str) -> list[str]:
    """The words in lower case, without ASCII and East Asian punctuation and without English articles.

    In scripts without blanks between words, each character is one.
    """
    return english_words(_UNSPACED.sub(r" \g<0> ", _EAST_ASIAN_MARKS.sub(" ", text)))


class Part(NamedTuple):
    """The part of an answer that a metric compares."""

    in_answer: Callable[[str], object]  # whether an answer has it
    lacking: str  # what is said of an answer without it; {metric} stands for the metric's name


WORDS = Part(
    words,
    "has no word that metric={metric} compares: it ignores punctuation and a, an, the; metric=choice compares a "
    "letter, module.function whatever it reads",
)
ASCII = Part(
    re.compile("[A-Za-z0-9]").search,
    "has no ASCII letter or digit, all that metric={metric} compares: metric=f1 compares words of any script",
)
LETTER = Part(re.compile("[A-Za-z]").fullmatch, "is not a letter, which metric={metric} compares")
PARTS: dict[OfAnswer, Part] = {}


def compares(part: Part) -> Callable[[OfAnswer], OfAnswer]:
    """Say of a metric which part of an answer it compares."""

    def said(metric: OfAnswer) -> OfAnswer:
        PARTS[metric] = part
        return metric

    return said


@compares(WORDS)
def exact(prediction: str, answer: str) -> float:
    """1 if both have the same `words` (SQuAD's exact match)."""
    return float(words(prediction) == words(answer))


@compares(WORDS)
def contains(prediction: str, answer: str) -> float:
    """1 if the answer's `words` occur in sequence in the prediction."""
    return float(f" {' '.join(words(answer))} " in f" {' '.join(words(prediction))} ")


@compares(WORDS)
def f1_of_words(prediction: str, answer: str) -> float:
    """F1 of the `words` (LongBench's QA score)."""
    return f1(words(prediction), words(answer))


@compares(ASCII)
def rouge_l(prediction: str, answer: str) -> float:
    """ROUGE-L F-measure of `rouge-score`, without stemming."""
    return float(google_rouge("rougeL", prediction, answer).fmeasure)


@compares(LETTER)
def choice(prediction: str, answer: str) -> float:
    """1 if the prediction chooses the letter `answer`: "answer is (B)" anywhere, else a letter at its beginning."""
    letter = _NAMED.search(prediction) or _LEADING.match(prediction)
    return float(letter is not None and letter[1].upper() == answer.upper())


METRICS: dict[str, OfAnswer] = {
    "contains": contains,
    "exact": exact,
    "f1": f1_of_words,
    "rouge_l": rouge_l,
    "choice": choice,
}


def score(name: str, prediction: str, answers: Sequence[str]) -> float:
    """The best score over the answers by a metric of METRICS, or the value of the function module.name for all answers.

    METRICS compare what follows the model's thinking, of which nothing is there if it never ends; a function gets all.

    Raises:
        UserError: an unknown metric; a function that returns no number in [0, 1].
    """
    if not is_function(name):
        given = "" if never_ends(prediction) else answer_part(prediction)
        return max(METRICS[name](given, answer) for answer in answers)
    value: object = function(name)(prediction, list(answers))
    returned = number(value)
    if returned is not None and 0 <= (rounded := without_rounding(returned)) <= 1:
        return rounded
    raise UserError(f"metric={name} returned {shown(value)}: a number from 0 to 1 is needed")


def check(name: str, answers: Sequence[str] = ()) -> None:
    """Raise UserError for an unknown metric, for a function of other arguments, and for answers that a metric cannot
    read."""
    if is_function(name):
        _check_arguments(name, function(name))
        return
    part = PARTS[METRICS[name]]
    for answer in answers:
        if not part.in_answer(answer):
            raise UserError(f"answer {answer[:40]!r} {part.lacking.format(metric=name)}")


def _check_arguments(name: str, metric: Metric) -> None:
    try:
        signature(metric).bind("", [])
    except TypeError as error:
        raise UserError(f"metric={name} is called with a prediction and a list of answers: {error}") from error
    except ValueError:  # some of Python's own functions do not tell
        return


def check_row(name: str) -> None:
    """Raise UserError unless a data file's metric has a name: no function that a file names is imported."""
    if not has_name(name):
        raise UserError(
            f"{unknown('metric', name, [*METRICS, *plugged()])}; a function is given by "
            "benchmark.metric=module.function, for all rows that name no metric"
        )


def is_function(name: str) -> bool:
    """Whether a metric is a user's or a plug-in's function, not one of METRICS."""
    return name not in METRICS


@cache
def plugged() -> dict[str, str]:
    """The metrics of plug-ins, and the module.function of each."""
    return {name: str(metric["function"]) for name, metric in declared("metric", METRICS).items()}


def has_name(metric: object) -> bool:
    """Whether a metric is one of METRICS or a plug-in's, which records may name."""
    return isinstance(metric, str) and (metric in METRICS or metric in plugged())


def function(name: str) -> Metric:
    """The function module.name, or a plug-in's, which is called with a prediction and the list of its answers.

    It is looked up at each call, as a notebook may import its module again. Raises UserError for a name that is neither
    a metric's nor a function's, and for a function that a stranger names.
    """
    if from_stranger() and not has_name(name):
        raise UserError(f"the metric {name!r} is a function that kvbench does not have")
    path = plugged().get(name, name)
    if "." not in path:
        raise unknown("metric", name, [*METRICS, *plugged(), "module.function"])
    try:
        metric = pkgutil.resolve_name(path)
    except Exception as error:  # whatever the module's top level raises
        raise UserError(f"metric={name} cannot be imported: {own_line(error) or in_one_line(error)}") from error
    if not callable(metric):
        raise UserError(f"metric={name} is {type(metric).__name__}, not a function")
    return metric


def source(name: str) -> str | None:
    """SHA-256 of the file that defines the function module.name; None for a metric of METRICS.

    Raises UserError if the function is not the file's.
    """
    if not is_function(name):
        return None
    try:
        return imported_hash(function(name))
    except UserError as error:
        raise UserError(f"metric={name}: {error}") from error
