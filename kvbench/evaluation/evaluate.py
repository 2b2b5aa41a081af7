"""Samples × settings → records: tokenise, prefill, compress, decode, score, record, store."""

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from kvbench.benchmarks import Sample
from kvbench.evaluation.answer import answer
from kvbench.evaluation.batch_size import BatchTooLarge, free_memory, in_a_batch
from kvbench.evaluation.context_frame import context_frame
from kvbench.evaluation.distance import Distances
from kvbench.evaluation.pending_tasks import (
    Compression,
    Task,
    by_pass,
    by_question,
    missing_work,
    to_compress,
    undone,
    with_full,
)
from kvbench.evaluation.prefill_passes import prefill_pass
from kvbench.evaluation.record import Failure, MethodRun, Row, record
from kvbench.evaluation.shared_state import SharedState
from kvbench.evaluation.spans import marks_of
from kvbench.evaluation.turns import converse
from kvbench.prefill import PrefillPlan, in_chunks
from kvbench.records.store import Store
from kvbench.utils.signals import unbroken


def evaluate(run: MethodRun, samples: Sequence[Sample], store: Store) -> Iterator[dict[str, Any] | Failure]:
    """Make and store every missing record, context after context.

    Yields each record once it is on disk, and a Failure instead of one that could not be made. If a batch does not fit
    into a GPU's memory, its context is compressed again, and from then on batches are half as large, as with
    decode.batch=N.
    """
    for tasks in missing_work(run, samples, store):
        left, done = list(tasks), set[str]()
        while left:
            smaller = None
            try:
                for outcome in records(run, left):
                    done.add(outcome.key if isinstance(outcome, Failure) else outcome["key"])
                    if not isinstance(outcome, Failure):
                        with unbroken():
                            store.append(outcome)
                    yield outcome
                left = []
            except BatchTooLarge as error:
                smaller = error.fits
            if smaller is not None:  # only here have the error and the tensors of its frames been freed
                free_memory()
                run = replace(run, batch=str(smaller))
                left = undone(run, left, done)


def records(run: MethodRun, tasks: Sequence[Task]) -> Iterator[dict[str, Any] | Failure]:
    """The records of one context, with one prefill for all settings that can share it."""
    distances = None
    if run.distance:
        tasks, distances = with_full(tasks), Distances(run)
    for plan, sharing in by_pass(tasks).items():
        yield from records_of_pass(run, in_chunks(plan, run.chunk), sharing, distances)


def records_of_pass(
    run: MethodRun, plan: PrefillPlan, tasks: Sequence[Task], distances: Distances | None
) -> Iterator[dict[str, Any] | Failure]:
    """Prefill once; compress once per setting; answer each question from a copy of the setting's caches.

    Settings decode as one batch, except those whose caches a rounding error in decoding could change: unless
    decode.batch=all, these decode alone, before a batch is made. If distances are measured, FullKV comes before all.
    The prompt's keys and values are freed before the last answers; FullKV's caches keep the parts that they need.
    """
    batch: list[Compression] = []
    methods, first, always = [task.method for task in tasks], tasks[0].prompts[0], run.batch == "all"
    frame = partial(context_frame, run.loaded, first)
    run.stage.text = f"{first.sample.id} · prefill of {len(first.context):,} tokens"
    marks = marks_of([prompt.spans for task in tasks for prompt in task.prompts], len(first.context))
    prefilled = prefill_pass(run.loaded.model, first.context, plan, methods, run.memory, frame, marks)
    left = list(tasks) if run.sequences == 1 else to_compress(tasks, distances is not None, always)
    while left:
        task = left.pop(0)
        if distances and not task.batches(always):
            yield from answers(run, batch, distances)  # FullKV's, before the next caches are made
            batch = []
        run.stage.text = f"{first.sample.id} · compressing with {task.setting.label}"
        with in_a_batch(len(batch) + 1, run.sequences):
            shared = SharedState(prefilled, task.method)
            compressed = prefilled.compress(task.method, task.budget)
            shared.check()
        compression = Compression(task, compressed, run.distance, always)
        if not left:  # before the last answers
            shared.release()
            del prefilled
        if run.sequences != 1 and compression.batches:
            batch.append(compression)
        else:
            if distances:
                yield from answers(run, batch, distances)  # these caches turn out to decode alone
                batch = []
            yield from answers(run, [compression], distances, shared)
        del compression, compressed  # free its caches before the next setting's are made
    yield from answers(run, batch, distances)


def answers(
    run: MethodRun, batch: Sequence[Compression], distances: Distances | None, shared: SharedState | None = None
) -> Iterator[dict[str, Any] | Failure]:
    """Decode, score and record, question after question. No record is made of caches that wrote what is `shared`."""
    sequences = run.sequences if all(compression.batches for compression in batch) else 1
    for rows in by_question(batch, sequences):
        prompt = rows[0].prompt
        several = f"{len(rows)} {'sequences' if run.sequences else 'settings'}"
        label = rows[0].setting.label if len(rows) == 1 else several
        run.stage.text = f"{prompt.sample.id} · decoding with {label}"
        with in_a_batch(max(len(batch), len(rows)), run.sequences):
            outputs = answer(run, prompt, rows)
        measured = distances.measure(prompt, rows, outputs) if distances else [None] * len(rows)
        if shared is not None:
            shared.check()
        for row, output, distance in zip(rows, outputs, measured, strict=True):
            if row.recorded:
                yield record(run, row.prompt, row, output, distance)
    for compression in batch:
        setting = compression.task.setting
        for turns in compression.conversations:
            row = Row(setting, turns[0], compression.compressed, next(compression.copies))
            run.stage.text = f"{turns[0].sample.id} · conversation with {setting.label}"
            for prompt, output in converse(run, row, turns):
                if shared is not None:
                    shared.check()
                yield record(run, prompt, row, output)
