"""Samples × engines → records: ask, check the prompt's tokens, end the answer by kvbench's rules, score, store."""

import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from functools import partial
from typing import Any

from kvbench.benchmarks import Sample
from kvbench.engines import texts
from kvbench.engines.base import CannotAnswer, Gone, Question, Session, Top
from kvbench.engines.canary import Canary, Likeness
from kvbench.engines.distance import compare, likeliest
from kvbench.engines.pool import in_parallel
from kvbench.engines.questions import asked_again, check_answer, ended, question
from kvbench.engines.record import Answered, EngineRun, Equality, failure, record
from kvbench.engines.references import Reference, References
from kvbench.engines.server_answers import AS_ID
from kvbench.engines.settings import EngineSetting
from kvbench.errors import Incomplete
from kvbench.evaluation.record import Failure
from kvbench.records.store import Store
from kvbench.utils.sequences import common_prefix


def evaluate(run: EngineRun, samples: Sequence[Sample], store: Store) -> Iterator[dict[str, Any] | Failure]:
    """Make and store every missing record, setting after setting; yields each record once it is on the disk.

    Raises Incomplete if an engine is gone; its earlier answers are stored.
    """
    references = References(run, samples, store)
    for setting in run.settings:
        keys = {run.key(sample, setting): sample for sample in samples}
        missing = [sample for key, sample in keys.items() if key not in store.done]
        if not missing:
            continue
        reference = references.of(setting, missing)
        twice = {sample.id for sample in samples[: setting.engine.repeat]}
        run.stage.text = f"{setting.label} · starting"
        try:
            with setting.engine.session() as session:
                recorder = Recorder(run, setting, session, twice, reference)
                keep, likeness = partial(append, store, references), Likeness(setting.label, reference.records)
                canary = Canary(run, setting, session, keys, reference.earlier) if setting.engine.repeat else None
                if canary:
                    canary.ask("before the run goes on")
                with closing(in_parallel(recorder.record, missing, setting.engine.concurrency, keep)) as results:
                    for result in results:
                        likeness.see(result)
                        if canary:
                            canary.see(result)
                        run.stage.text = setting.label
                        yield result
                if canary:
                    canary.ask("at its end")
        except Gone as error:
            then = "all earlier records are safe, and the same command continues from there"
            raise Incomplete(f"{setting.label!r}: {error}; {then}") from error


def append(store: Store, references: References, result: dict[str, Any] | Failure) -> None:
    if not isinstance(result, Failure):
        store.append(result)
        references.add(result)


class Recorder:
    """From samples to their records in one engine's session. Several threads call it."""

    def __init__(
        self,
        run: EngineRun,
        setting: EngineSetting,
        session: Session,
        twice: set[str],
        reference: Reference,
    ):
        """twice: ids of samples to ask twice."""
        self.run, self.setting, self.session, self.twice, self.reference = run, setting, session, twice, reference

    def record(self, sample: Sample) -> dict[str, Any] | Failure:
        asked = question(self.run.loaded, sample)
        try:
            answered = self.score(asked, sample) if sample.continuation else self.answer(asked)
            return record(self.run, sample, self.setting, answered)
        except CannotAnswer as error:
            return failure(self.run, sample, self.setting, str(error))

    def answer(self, question: Question) -> Answered:
        top = self.setting.engine.top if self.run.distance and self.reference.itself else 0
        started = time.perf_counter()
        completion = self.session.complete(question, top)
        seconds = time.perf_counter() - started
        check_answer(question, completion, self.run.loaded, self.setting.engine.chats)
        tokens, text = ended(question, completion, self.run.loaded)
        tops = list(completion.top[: len(tokens) + 1]) if completion.top and tokens is not None else None
        repeated = self.ask_again(question, text) if question.sample in self.twice else None
        baseline = self.reference.records.get(question.sample)
        return Answered(
            question,
            text,
            tokens,
            seconds,
            tops,
            repeated,
            self.distance(question, tops),
            Equality.from_answer(baseline, text, tokens) if baseline else None,
            completion.prompt_tokens if self.setting.engine.chats else None,
        )

    def score(self, question: Question, sample: Sample) -> Answered:
        """Score a text after the prompt instead of an answer. The likeliest tokens are only for distances."""
        text = texts.text_of(self.run.loaded, sample, question)
        top = self.setting.engine.top if self.run.distance else 0
        started = time.perf_counter()
        scored = texts.score(self.session, text, top)
        seconds = time.perf_counter() - started
        twice = question.sample in self.twice
        repeated = texts.repeated(scored, texts.score(self.session, text, 0)) if twice else None
        itself = self.reference.itself
        reference = scored.top if itself else self.reference.records.get(question.sample, {}).get("top")
        distance = texts.measures(self.run.loaded, text, scored, reference if top else None)
        tops = scored.top if top and itself else None
        return Answered(question, "", [], seconds, tops, repeated, distance)

    def ask_again(self, question: Question, text: str) -> dict[str, Any]:
        """Whether the question gets the same answer again, and the share of the text before the first difference.

        Raises CannotAnswer for a second answer that is not whole: it says nothing of the engine's noise.
        """
        try:
            again = asked_again(self.session, question, self.run.loaded, self.setting.engine.chats)
        except CannotAnswer as error:
            raise CannotAnswer(f"asked again: {error}") from error
        longest = max(len(text), len(again))
        return {"equal": text == again, "agreed": common_prefix(text, again) / longest if longest else 1.0}

    def distance(self, question: Question, tops: Sequence[Top] | None) -> dict[str, float] | None:
        """The distance from the reference's answer to the sample; None if its likeliest tokens are not known."""
        if not self.run.distance:
            return None
        if self.reference.itself:
            return compare(tops, tops) if tops else None
        reference = self.reference.records.get(question.sample, {})
        if not reference.get("top"):
            return None
        places = places_of(reference["tokens"], reference["top"], question.stops)
        followed = self.session.follow(question, places, self.setting.engine.top) if places else None
        return None if followed is None else compare(reference["top"][: len(places)], followed)


def places_of(tokens: Sequence[int], top: Sequence[Top], stops: frozenset[int]) -> list[int]:
    """The tokens at whose places distances are compared: an answer's tokens, and the token that ended it if its place
    is known."""
    end = likeliest(top[len(tokens)]) if len(top) > len(tokens) else None
    last = [stop for stop in stops if end == f"{AS_ID}{stop}"]
    return [*tokens, *last]
