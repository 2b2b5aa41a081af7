"""The record of one sample under one engine."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any, NamedTuple

from kvbench.benchmarks import Sample
from kvbench.engines.base import Question, Top
from kvbench.engines.settings import EngineSetting
from kvbench.errors import UserError
from kvbench.evaluation.record import Failure, Run, identity
from kvbench.models import TextModel
from kvbench.records.same_answer import answer_hash, same_answer
from kvbench.records.schema import build


class Equality(NamedTuple):
    """Whether an answer equals the baseline's answer."""

    equal: bool
    baseline: str  # the baseline's setting, and a hash of its answer

    @classmethod
    def from_answer(cls, baseline: Mapping[str, Any], text: str, tokens: Sequence[int] | None) -> "Equality":
        """baseline: the record of the baseline's answer; text, tokens: this answer."""
        equal = same_answer({"prediction": text, "tokens": tokens}, baseline)
        return cls(equal, f"{baseline['setting']} {answer_hash(baseline)}")


@dataclass(frozen=True)
class Answered:
    """An engine's answer to one sample, ended by kvbench's rules, with its measurements."""

    question: Question
    text: str
    tokens: Sequence[int] | None
    seconds: float
    top: Sequence[Top] | None = None
    repeated: Mapping[str, object] | None = None
    distance: Mapping[str, float] | None = None
    equality: Equality | None = None
    served_tokens: int | None = None  # tokens of the prompt in the server's chat template


EngineRun = Run[TextModel, EngineSetting]


def failure(run: EngineRun, sample: Sample, setting: EngineSetting, reason: str) -> Failure:
    return Failure(run.key(sample, setting), sample.id, setting.label, reason)


def record(run: EngineRun, sample: Sample, setting: EngineSetting, answered: Answered) -> dict[str, Any] | Failure:
    """Score an answer and make its record. A score that is not a finite number is a failure."""
    n = len(answered.question.ids)
    cache = setting.engine.cache_bytes(n)
    fields = {
        **identity(run, sample, setting),
        "floored": False,
        "target_missed": False,
        **sample.meta,
        **({"context_id": sample.context_id} if sample.context_id else {}),
        **({"unit": sample.unit} if sample.unit else {}),
        "question": run.question,
        "prompt_tokens": n,
        "answers": list(sample.answers),
        "prediction": answered.text,
        "tokens": None if answered.tokens is None else list(answered.tokens),
        "scores": run.benchmark.scores(sample, answered.text),
        "distance": answered.distance and dict(answered.distance),
        "top": None if answered.top is None else [dict(place) for place in answered.top],
        "reported_bytes": cache.reported,
        "stated_bytes": cache.stated,
        **(answered.equality._asdict() if answered.equality else {}),
        **({} if answered.served_tokens is None else {"served_tokens": answered.served_tokens}),
        "repeated": answered.repeated and dict(answered.repeated),
        "request_seconds": answered.seconds,
        "concurrency": setting.engine.concurrency,
        **({"sampling": asdict(sample.sampling)} if sample.sampling else {}),
    }
    try:
        return build("engine", fields)
    except UserError as error:
        return failure(run, sample, setting, str(error).partition(": ")[2])
