"""A text's tokens scored by an engine, in the same windows as under kvbench's caches."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

from kvbench.benchmarks import Sample
from kvbench.engines.base import Question, Scored, Session, Top
from kvbench.engines.distance import compare
from kvbench.engines.questions import check_scored
from kvbench.evaluation.text_measures import text_measures, text_tokens
from kvbench.models import TextModel
from kvbench.utils.sequences import common_prefix


@dataclass(frozen=True)
class Text:
    """A context with the first token after it, which is not scored, and the tokens to score."""

    question: Question
    tokens: Sequence[int]


def text_of(reader: TextModel, sample: Sample, context: Question) -> Text:
    """The text of a sample with a continuation, in the form that an engine reads and scores."""
    first, *rest = text_tokens(reader, sample)
    return Text(replace(context, ids=[*context.ids, first]), rest)


def score(session: Session, text: Text, top: int) -> Scored:
    """The text's log-probabilities. Raises CannotAnswer if the engine scores no tokens, or other tokens."""
    scored = session.score(text.question, text.tokens, top)
    check_scored(text.question, text.tokens, scored)
    return scored


def measures(reader: TextModel, text: Text, scored: Scored, baseline: Sequence[Top] | None) -> dict[str, float]:
    """`nll` and `bits_per_byte`; with the likeliest tokens of both engines also the distances from the baseline."""
    distances = compare(baseline, scored.top) if baseline and scored.top else None
    return (distances or {}) | text_measures(reader, text.tokens, math.fsum(scored.logprobs))


def repeated(first: Scored, second: Scored) -> Mapping[str, object]:
    """Whether the same tokens have the same log-probabilities again; the share before the first difference."""
    prefix, tokens = common_prefix(first.logprobs, second.logprobs), len(first.logprobs)
    return {"equal": prefix == tokens, "agreed": prefix / tokens}
