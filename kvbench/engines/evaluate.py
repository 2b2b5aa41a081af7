"""Samples × engines → records: ask, check what was read, end the answer by kvbench's rules, score, store."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

from kvbench.benchmarks import Sample
from kvbench.engines import texts
from kvbench.engines.base import CannotAnswer, Gone, Question, Session, Top
from kvbench.engines.distance import compare
from kvbench.engines.pool import in_parallel
from kvbench.engines.questions import check_count, ended, question
from kvbench.engines.record import Answered, EngineRun, failure, record
from kvbench.engines.settings import EngineSetting
from kvbench.errors import Incomplete
from kvbench.evaluation.record import Failure
from kvbench.records.store import Store, read_records
from kvbench.utils.sequences import common_prefix
from kvbench.utils.signals import unbroken


def evaluate(run: EngineRun, samples: Sequence[Sample], store: Store) -> Iterator[dict[str, Any] | Failure]:
    """Make and store every missing record, setting after setting; yields each once it is on the disk.

    Raises Incomplete where an engine is gone; its earlier answers are stored.
    """
    for setting in run.settings:
        missing = [sample for sample in samples if run.key(sample, setting) not in store.done]
        if not missing:
            continue
        baseline = baseline_of(run, setting, missing, store) if run.distance else None
        twice = {sample.id for sample in samples[: setting.engine.repeat]}
        run.stage.text = f"{setting.label} · starting"
        with setting.engine.session() as session:
            recorder = Recorder(run, setting, session, twice, baseline)
            try:
                for result in in_parallel(recorder.record, missing, setting.engine.concurrency):
                    if not isinstance(result, Failure):
                        with unbroken():
                            store.append(result)
                    run.stage.text = setting.label
                    yield result
            except Gone as error:
                then = "all earlier records are safe, and the same command continues from there"
                raise Incomplete(f"{setting.label!r}: {error}; {then}") from error


def baseline_of(
    run: EngineRun, setting: EngineSetting, samples: Sequence[Sample], store: Store
) -> dict[str, dict[str, Any]]:
    """The first setting's records by sample, the reference of distances; {} for that setting itself."""
    first = run.settings[0]
    if setting is first:
        return {}
    keys = {run.key(sample, first): sample.id for sample in samples}
    records = read_records(store.path).records
    return {keys[record["key"]]: record for record in records if record["key"] in keys}


class Recorder:
    """From samples to their records in one engine's session. Several threads call it."""

    def __init__(
        self,
        run: EngineRun,
        setting: EngineSetting,
        session: Session,
        twice: set[str],
        baseline: dict[str, dict[str, Any]] | None,
    ):
        """twice: ids of samples to ask twice; baseline: see `baseline_of`, None where no distance is measured."""
        self.run, self.setting, self.session, self.twice, self.baseline = run, setting, session, twice, baseline
        self.is_first = setting is run.settings[0]

    def record(self, sample: Sample) -> dict[str, Any] | Failure:
        asked = question(self.run.loaded, sample)
        try:
            answered = self.score(asked, sample) if sample.continuation else self.answer(asked)
            return record(self.run, sample, self.setting, answered)
        except CannotAnswer as error:
            return failure(self.run, sample, self.setting, str(error))

    def answer(self, question: Question) -> Answered:
        top = self.setting.engine.top if self.baseline is not None and self.is_first else 0
        started = time.perf_counter()
        completion = self.session.complete(question, top)
        seconds = time.perf_counter() - started
        check_count(question, completion)
        tokens, text = ended(question, completion, self.run.loaded)
        likeliest = list(completion.top[: len(tokens)]) if completion.top and tokens else None
        repeated = self.ask_again(question, text) if question.sample in self.twice else None
        return Answered(question, text, tokens, seconds, likeliest, repeated, self.distance(question, likeliest))

    def score(self, question: Question, sample: Sample) -> Answered:
        """Score a text after the prompt in place of an answer. `top` serves distances alone."""
        text = texts.text_of(self.run.loaded, sample, question)
        top = self.setting.engine.top if self.baseline is not None else 0
        started = time.perf_counter()
        scored = texts.score(self.session, text, top)
        seconds = time.perf_counter() - started
        twice = question.sample in self.twice
        repeated = texts.repeated(scored, texts.score(self.session, text, 0)) if twice else None
        reference = scored.top if self.is_first else self.reference(question).get("top")
        distance = texts.measures(self.run.loaded, text, scored, reference if top else None)
        likeliest = scored.top if top and self.is_first else None
        return Answered(question, "", [], seconds, likeliest, repeated, distance)

    def ask_again(self, question: Question, text: str) -> dict[str, Any]:
        """Whether the question has the same answer again, and the share of the text before the first difference."""
        _, again = ended(question, self.session.complete(question, 0), self.run.loaded)
        longest = max(len(text), len(again))
        return {"equal": text == again, "agreed": common_prefix(text, again) / longest if longest else 1.0}

    def reference(self, question: Question) -> dict[str, Any]:
        """The first setting's record of a sample; {} where there is none."""
        return (self.baseline or {}).get(question.sample, {})

    def distance(self, question: Question, likeliest: Sequence[Top] | None) -> dict[str, float] | None:
        """The distance from the first setting's answer to the sample, where its likeliest tokens are known."""
        if self.baseline is None:
            return None
        if self.is_first:
            return compare(likeliest, likeliest) if likeliest else None
        reference = self.reference(question)
        if not reference.get("top") or not reference.get("tokens"):
            return None
        followed = self.session.follow(question, reference["tokens"], self.setting.engine.top)
        return None if followed is None else compare(reference["top"], followed)
