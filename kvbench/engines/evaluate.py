"""Samples × engines → records: ask, check what was read, end the answer by kvbench's rules, score, store."""

import time
from collections.abc import Iterator, Sequence
from typing import Any

from kvbench.benchmarks import Sample
from kvbench.engines import texts
from kvbench.engines.base import CannotAnswer, Engine, Gone, Question, Session, Top
from kvbench.engines.distance import compare
from kvbench.engines.pool import in_parallel
from kvbench.engines.questions import check_count, ended, question
from kvbench.engines.record import Answered, EngineRun, failure, record
from kvbench.engines.settings import EngineSetting
from kvbench.errors import Incomplete
from kvbench.evaluation.record import Failure
from kvbench.records.store import Store, read_records
from kvbench.utils.signals import unbroken


def evaluate(run: EngineRun, samples: Sequence[Sample], store: Store) -> Iterator[dict[str, Any] | Failure]:
    """Make and store every missing record, setting after setting; yields each once it is on the disk.

    Raises Incomplete where an engine is gone: what it answered before is stored.
    """
    for setting in run.settings:
        left = [sample for sample in samples if run.key(sample, setting) not in store.done]
        if not left:
            continue
        baseline = baseline_of(run, setting, left, store) if run.distance else None
        again = {sample.id for sample in samples[: setting.engine.repeat]}
        run.stage.text = f"{setting.label} · starting"
        with setting.engine.session() as session:
            asking = Asking(run, setting, session, again, baseline)
            try:
                for made in in_parallel(asking.made, left, setting.engine.concurrency):
                    if not isinstance(made, Failure):
                        with unbroken():
                            store.append(made)
                    run.stage.text = setting.label
                    yield made
            except Gone as error:
                then = "all earlier records are safe, and the same command continues from there"
                raise Incomplete(f"{setting.label!r}: {error}; {then}") from error


def baseline_of(
    run: EngineRun, setting: EngineSetting, samples: Sequence[Sample], store: Store
) -> dict[str, dict[str, Any]]:
    """The first setting's records by sample, from which distances are measured; {} for that setting itself."""
    first = run.settings[0]
    if setting is first:
        return {}
    keys = {run.key(sample, first): sample.id for sample in samples}
    records = read_records(store.path).records
    return {keys[record["key"]]: record for record in records if record["key"] in keys}


class Asking:
    """One engine's session: from a sample to its record. Several threads call it."""

    def __init__(
        self,
        run: EngineRun,
        setting: EngineSetting,
        session: Session,
        again: set[str],
        baseline: dict[str, dict[str, Any]] | None,
    ):
        """again: samples to ask twice; baseline: see `baseline_of`, None where no distance is measured."""
        self.run, self.setting, self.session, self.again, self.baseline = run, setting, session, again, baseline
        self.engine: Engine = setting.engine
        self.is_first = setting is run.settings[0]

    def made(self, sample: Sample) -> dict[str, Any] | Failure:
        asked = question(self.run.loaded, sample)
        try:
            answered = self.scored(asked, sample) if sample.continuation else self.answered(asked)
            return record(self.run, sample, self.setting, answered)
        except CannotAnswer as error:
            return failure(self.run, sample, self.setting, str(error))

    def answered(self, asked: Question) -> Answered:
        top = self.engine.top if self.baseline is not None and self.is_first else 0
        started = time.perf_counter()
        completion = self.session.complete(asked, top)
        seconds = time.perf_counter() - started
        check_count(asked, completion)
        tokens, text = ended(asked, completion, self.run.loaded)
        kept = completion.top and tokens is not None and list(completion.top[: len(tokens)])
        repeated = self.repeated(asked, text) if asked.sample in self.again else None
        distance = self.distance(asked, kept or None)
        return Answered(asked, text, tokens, seconds, kept or None, repeated, distance)

    def scored(self, asked: Question, sample: Sample) -> Answered:
        """A text behind the prompt in place of an answer. Without distances there is nothing to compare it with."""
        text = texts.text_of(self.run.loaded, sample, asked)
        top = self.engine.top if self.baseline is not None else 0
        started = time.perf_counter()
        found = texts.score(self.session, text, top)
        seconds = time.perf_counter() - started
        again = asked.sample in self.again
        repeated = texts.repeated(found, texts.score(self.session, text, 0)) if again else None
        reference = found.top if self.is_first else (self.baseline or {}).get(asked.sample, {}).get("top")
        distance = texts.measures(self.run.loaded, text, found, reference if top else None)
        return Answered(asked, "", [], seconds, found.top if top and self.is_first else None, repeated, distance)

    def repeated(self, asked: Question, text: str) -> dict[str, Any]:
        """Whether the same question has the same answer again."""
        _, second = ended(asked, self.session.complete(asked, 0), self.run.loaded)
        longest = max(len(text), len(second))
        same = next((place for place, (a, b) in enumerate(zip(text, second, strict=False)) if a != b), None)
        same = min(len(text), len(second)) if same is None else same
        return {"equal": text == second, "agreed": same / longest if longest else 1.0}

    def distance(self, asked: Question, own: Sequence[Top] | None) -> dict[str, float] | None:
        """From the first setting's answer to the sample, where its likeliest tokens are known."""
        if self.baseline is None:
            return None
        if self.is_first:
            return compare(own, own) if own else None
        reference = self.baseline.get(asked.sample, {})
        if not reference.get("top") or not reference.get("tokens"):
            return None
        found = self.session.follow(asked, reference["tokens"], self.engine.top)
        return None if found is None else compare(reference["top"], found)
