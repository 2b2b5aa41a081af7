"""Samples × settings → records: what is shared, what is missing, in which order."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from kvbench.benchmarks import Sample
from kvbench.evaluation.passes import Compressed, SharedPass, StreamedPass, num_layers
from kvbench.evaluation.prompts import Prompt, together, tokenise
from kvbench.evaluation.record import Failure, Row, Run, measure
from kvbench.evaluation.settings import Setting
from kvbench.prefill import PrefillPlan
from kvbench.records.store import Store
from kvbench.utils.signals import unbroken

BATCH = ("auto", "1")
# The prompts of one context that a setting has no record of yet.
Todo = list[tuple[Setting, list[Prompt]]]


def evaluate(run: Run, samples: Sequence[Sample], store: Store) -> Iterator[dict | Failure]:
    """Make and store every missing record, one prefill for all settings and questions that can share it.

    Yields each record once it is on the disk, and a Failure in place of one that could not be made.
    """
    for group in together(samples, run.question):
        for prompts in contexts(run, [sample for sample in group if missing(run, sample, store)]):
            todo = [
                (setting, asked)
                for setting in run.settings
                if (asked := [p for p in prompts if run.key(p.sample, setting) not in store.done])
            ]
            for record in records(run, todo):
                if not isinstance(record, Failure):
                    with unbroken():
                        store.append(record)
                yield record


def missing(run: Run, sample: Sample, store: Store) -> bool:
    return any(run.key(sample, setting) not in store.done for setting in run.settings)


def contexts(run: Run, samples: Sequence[Sample]) -> list[list[Prompt]]:
    """The samples as prompts, those with the same tokens to compress together."""
    groups: dict[object, list[Prompt]] = {}
    for sample in samples:
        prompt = tokenise(run.loaded, sample, run.question)
        groups.setdefault(tuple(prompt.context.tolist()), []).append(prompt)
    return list(groups.values())


def records(run: Run, todo: Todo) -> Iterator[dict | Failure]:
    """The records of one context, one pass over it for all settings that can share it.

    A setting compresses once; each of its questions starts from there. Settings whose decoding rounding
    errors cannot turn decode together.
    """
    model, ids = run.loaded.model, todo[0][1][0].context
    for plan, sharers in by_pass(todo, len(ids), num_layers(model)).items():
        if run.memory == "stream":
            source = StreamedPass(model, ids, plan)
        else:
            source = SharedPass(model, ids, plan, reduce(or_, (setting.method.needs for setting, _ in sharers)))
        together: list[Ready] = []
        for setting, prompts in sharers:
            compressed = source.compress(setting.method, setting.budget_at(len(ids), num_layers(model)))
            ready = Ready(setting, prompts, compressed)
            if run.batch == "auto" and all(cache.batches for cache in compressed.caches):
                together.append(ready)
            else:
                yield from decode(run, [ready])
            del compressed, ready  # its caches, before the next setting's are made
        yield from decode(run, together)
        del source, together  # before the next pass is made


@dataclass
class Ready:
    """A setting with its compressed context, and the prompts to go on with from there."""

    setting: Setting
    prompts: list[Prompt]
    compressed: Compressed

    def __post_init__(self):
        self.copies = self.compressed.copies(len(self.prompts))


def decode(run: Run, batch: list[Ready]) -> Iterator[dict | Failure]:
    """The records of settings that decode together, question after question."""
    asked = {prompt.sample.id: prompt for ready in batch for prompt in ready.prompts}
    for sample, prompt in asked.items():
        rows = [
            Row(ready.setting, ready.compressed, next(ready.copies))
            for ready in batch
            if any(other.sample.id == sample for other in ready.prompts)
        ]
        yield from measure(run, prompt, rows)


def by_pass(todo: Todo, n: int, num_layers: int) -> dict[PrefillPlan, Todo]:
    """The settings grouped by the pass over a prompt of n tokens that they can share."""
    groups: dict[PrefillPlan, Todo] = {}
    for setting, prompts in todo:
        plan = setting.method.plan(n, num_layers, setting.budget_at(n, num_layers))
        groups.setdefault(plan, []).append((setting, prompts))
    return groups
