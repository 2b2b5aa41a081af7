"""The packages behind the official metrics, imported when first used, with their messages suppressed.

jieba reports on stderr that it loads its dictionary, fuzzywuzzy warns about difflib, which is the right matcher here,
and both compile with warnings on new versions of Python.
"""

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.metadata import packages_distributions
from typing import Any

from kvbench.errors import UserError
from kvbench.utils.extras import require

# At this limit rouge 1.0.1 raises, and the official score is then 0.
OFFICIAL_RECURSION_LIMIT = 1000  # Python's default, which LongBench's eval.py does not change


_OF_LONGBENCH = "a metric of LongBench"


def words(text: str) -> list[str]:
    """jieba's segmentation in default mode; blanks and punctuation are words too."""
    return list(_jieba().cut(text, cut_all=False))


def similarity(a: str, b: str) -> int:
    """fuzzywuzzy's ratio by difflib, 0 to 100."""
    check_backend()
    return int(_fuzz().ratio(a, b))


@cache
def check_backend() -> str:
    """The matcher of fuzzywuzzy: "difflib", as in the published numbers.

    Raises:
        UserError: python-Levenshtein would be used instead, which gives other numbers.
    """
    matcher = _fuzz().SequenceMatcher.__module__
    if matcher == "difflib":
        return matcher
    packages = " ".join(sorted(set(packages_distributions().get("Levenshtein", ["python-Levenshtein"]))))
    raise UserError(
        f"fuzzywuzzy uses python-Levenshtein here, which changes the scores of lcc and repobench-p: "
        f"the published ones are made with difflib; pip uninstall {packages}"
    )


def rouge_l(prediction: str, answer: str, frames: int) -> float:
    """`f` of rouge-l in the package `rouge`, or 0 where that raises, as in LongBench's eval.py.

    The package raises on an empty text, and where its recursion along two sentences reaches Python's limit, at about a
    thousand words. So that scores do not depend on the caller, it gets the depth that it has below `frames` functions
    of eval.py.
    """
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(limit + OFFICIAL_RECURSION_LIMIT - frames - _room())
    try:
        return float(_rouge("rouge-l").get_scores(prediction, answer)[0]["rouge-l"]["f"])
    except Exception:
        return 0.0
    finally:
        sys.setrecursionlimit(limit)


def rouge_1(prediction: str, answer: str) -> float:
    """`f` of rouge-1 in the package `rouge`; 0 where it raises, because one of the texts has no word."""
    try:
        return float(_rouge("rouge-1").get_scores(prediction, answer)[0]["rouge-1"]["f"])
    except ValueError:
        return 0.0


def _room() -> int:
    """How many nested calls the caller can still make, by trial: versions of Python count calls differently."""
    try:
        return 1 + _room()
    except RecursionError:
        return 1


def google_rouge(kind: str, prediction: str, answer: str, stemmer: bool = False, tokenizer: object = None) -> Any:
    """Precision, recall and fmeasure of Google's package `rouge-score`; `kind` is rouge1, rougeL or rougeLsum."""
    return _google_rouge(kind, stemmer, tokenizer).score(answer, prediction)[kind]


@cache
def _google_rouge(kind: str, stemmer: bool, tokenizer: object) -> Any:
    require(f"{kind}, a score of summaries and sentences,", "rouge_score")
    from rouge_score.rouge_scorer import RougeScorer

    return RougeScorer([kind], use_stemmer=stemmer, tokenizer=tokenizer)


@cache
def _rouge(metric: str) -> Any:
    require(f"{metric}, a score of sentences,", "rouge")
    from rouge import Rouge

    return Rouge(metrics=[metric])


@cache
def _jieba() -> Any:
    require(_OF_LONGBENCH, "jieba")
    with _quiet():
        import jieba

        jieba.setLogLevel(logging.WARNING)
    return jieba


@cache
def _fuzz() -> Any:
    require(_OF_LONGBENCH, "fuzzywuzzy")
    with _quiet():
        from fuzzywuzzy import fuzz
    return fuzz


@contextmanager
def _quiet() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield
