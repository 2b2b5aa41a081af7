"""A text's tokens scored by an engine: the same windows, and the same tokens of each, as under kvbench's own caches."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kvbench.benchmarks import Sample
from kvbench.engines.base import Question, Scored, Session, Top
from kvbench.engines.distance import compare
from kvbench.engines.questions import check_scored
from kvbench.evaluation.text_measures import text_measures, text_tokens
from kvbench.models import TextModel


@dataclass(frozen=True)
class Text:
    """A context with the first token behind it, which is not scored, and the tokens that are."""

    question: Question
    tokens: Sequence[int]


def text_of(reader: TextModel, sample: Sample, asked: Question) -> Text:
    """What an engine reads and scores of a sample with a continuation, whose context is `asked`."""
    first, *rest = text_tokens(reader, sample)
    return Text(replace(asked, ids=[*asked.ids, first]), rest)


def score(session: Session, text: Text, top: int) -> Scored:
    """Raises CannotAnswer where the engine scores no tokens, or others."""
    found = session.score(text.question, text.tokens, top)
    check_scored(text.question, text.tokens, found)
    return found


def measures(reader: TextModel, text: Text, scored: Scored, baseline: Sequence[Top] | None) -> dict[str, float]:
    """`nll` and `bits_per_byte`; with the likeliest tokens of both also the distances from the baseline's."""
    found = text_measures(reader, text.tokens, math.fsum(scored.logprobs))
    if baseline and scored.top:
        found = (compare(baseline, scored.top) or {}) | found
    return found


def repeated(first: Scored, second: Scored) -> Mapping[str, object]:
    """Whether the same tokens have the same log-probabilities again; the share of them before the first other one."""
    pairs = list(zip(first.logprobs, second.logprobs, strict=True))
    same = next((place for place, (a, b) in enumerate(pairs) if a != b), len(pairs))
    return {"equal": same == len(pairs), "agreed": same / len(pairs)}
