"""Missing records, grouped by the work that they share: contexts, prefill passes, questions."""

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from torch import Tensor

from kvbench.benchmarks import Sample
from kvbench.cache.base import StoredLayer
from kvbench.evaluation.prefill_passes import Compressed, num_layers
from kvbench.evaluation.prompts import Prompt, together, tokenise
from kvbench.evaluation.record import AnyRun, MethodRun, Row
from kvbench.evaluation.settings import Setting, is_full
from kvbench.evaluation.turns import conversations
from kvbench.methods import FullKV
from kvbench.methods.base.method import Method
from kvbench.models.attending_layer import AttendingLayer
from kvbench.prefill import PrefillPlan
from kvbench.prefill.plan import by_plan
from kvbench.records.identity import FULL
from kvbench.records.store import Store


@dataclass(frozen=True)
class Task:
    """One setting on one context with one budget: prompts that begin with this context and have no record under this
    setting."""

    setting: Setting
    budget: int | float  # tokens per layer and head, at this context
    prompts: list[Prompt]
    num_layers: int
    unrecorded: frozenset[str] = frozenset()  # samples that FullKV answers only for the distances of other settings

    @property
    def context(self) -> Tensor:
        """Token ids [n]."""
        return self.prompts[0].context

    @property
    def method(self) -> Method:
        return self.setting.method

    def batches(self, always: bool) -> bool:
        """Whether its caches decode in a batch with other settings, as far as is known before compression.

        always: even caches that rounding could change.
        """
        conversations = any(prompt.sample.own_answers for prompt in self.prompts)
        return (always or self.method.batches) and not conversations


class Compression:
    """A setting's compressed context, from which each of the task's questions is answered."""

    def __init__(self, task: Task, compressed: Compressed, distance: bool = False, always_batches: bool = False):
        """distance: FullKV's distance will be measured; always_batches: even caches that rounding could change."""
        self.task = task
        self.always_batches = always_batches
        self.compressed = compressed
        self.conversations = conversations(task.prompts)
        # to decode, and to read FullKV's answer and the expected one
        readings = sum(2 + bool(prompt.sample.answers) if distance else 1 for prompt in self.prompts)
        self.copies: Iterator[list[StoredLayer]] = compressed.copies(readings + len(self.conversations))

    @property
    def prompts(self) -> list[Prompt]:
        """The task's prompts except prompts of conversations."""
        return [prompt for prompt in self.task.prompts if not prompt.sample.own_answers]

    def answers(self, prompt: Prompt) -> bool:
        """Whether the task has this prompt."""
        return any(other.sample.id == prompt.sample.id for other in self.task.prompts)

    def row(self, prompt: Prompt) -> Row:
        """A row that answers a prompt, with the next copy of the caches."""
        return Row(
            self.task.setting,
            prompt,
            self.compressed,
            caches=next(self.copies),
            copies=self.copies,
            recorded=prompt.sample.id not in self.task.unrecorded,
        )

    @property
    def batches(self) -> bool:
        """Whether its sequence may decode in a batch with other settings (see `BatchCache`).

        A conversation continues from its own answers, and a cache that reads a question token by token would make the
        rest of its batch do so, too.
        """
        caches = self.compressed.caches
        readers = any(isinstance(cache, AttendingLayer) and cache.readers for cache in caches)
        if self.conversations or (readers and not all(cache.takes_blocks for cache in caches)):
            return False
        return self.always_batches or all(cache.batches for cache in caches)


def missing_work(run: MethodRun, samples: Sequence[Sample], store: Store) -> Iterator[list[Task]]:
    """For every context that lacks records: the tasks of each setting that lacks some."""
    for prompts in missing_contexts(run, samples, store):
        tasks, layers = [], num_layers(run.loaded.model, len(prompts[0].context))
        for setting in run.settings:
            left = [prompt for prompt in prompts if run.key(prompt.sample, setting) not in store.done]
            tasks += by_budget(setting, left, layers)
        yield tasks


def by_budget(setting: Setting, prompts: Sequence[Prompt], num_layers: int) -> list[Task]:
    """The tasks of one setting on one context: prompts share a compression if their budgets are equal.

    They differ where a ratio counts the tokens after the context. Each prompt counts its own: a record must not depend
    on which other questions lack theirs.
    """
    groups: dict[int | float, list[Prompt]] = {}
    for prompt in prompts:
        budget = setting.budget_at(len(prompt.context), num_layers, prompt.new_tokens)
        groups.setdefault(budget, []).append(prompt)
    return [Task(setting, budget, alike, num_layers) for budget, alike in groups.items()]


def missing_contexts(run: AnyRun, samples: Sequence[Sample], store: Store) -> Iterator[list[Prompt]]:
    """The samples that lack a record under any setting, as prompts grouped by equal tokens to compress."""
    for group in together(samples, run.question):
        contexts: dict[tuple[int, ...], list[Prompt]] = {}
        for sample in group:
            if any(run.key(sample, setting) not in store.done for setting in run.settings):
                prompt = tokenise(run.loaded, sample, run.question, run.first_token)
                contexts.setdefault(tuple(prompt.context.tolist()), []).append(prompt)
        yield from contexts.values()


def with_full(tasks: Sequence[Task]) -> list[Task]:
    """The tasks of one context, FullKV's first and with every prompt of the others."""
    prompts = list({prompt.sample.id: prompt for task in tasks for prompt in task.prompts}.values())
    full = next((task for task in tasks if is_full(task.setting)), None)
    setting = Setting(FULL, FullKV(), "") if full is None else full.setting
    requested = frozenset() if full is None else frozenset(prompt.sample.id for prompt in full.prompts)
    unrecorded = frozenset(prompt.sample.id for prompt in prompts) - requested
    first = Task(setting, len(prompts[0].context), prompts, tasks[0].num_layers, unrecorded)
    return [first, *(task for task in tasks if task is not full)]


def undone(run: MethodRun, tasks: Sequence[Task], done: Collection[str]) -> list[Task]:
    """The tasks of one context without the prompts that have a record or failure: `done` has their keys."""
    left = []
    for task in tasks:
        prompts = [prompt for prompt in task.prompts if run.key(prompt.sample, task.setting) not in done]
        if prompts:
            left.append(replace(task, prompts=prompts))
    return left


def to_compress(tasks: Sequence[Task], distance: bool, always_batches: bool) -> list[Task]:
    """The tasks of one pass in the order of compression: settings that decode alone come before settings of the batch,
    so that no batch is held meanwhile. FullKV comes before all if distances are measured."""
    ordered = sorted(tasks, key=lambda task: task.batches(always_batches))
    return sorted(ordered, key=lambda task: not (distance and is_full(task.setting)))


def by_pass(tasks: Sequence[Task]) -> dict[PrefillPlan, list[Task]]:
    """The tasks of one context by the prefill pass that they can share."""
    return by_plan(tasks, lambda task: task.method.plan(len(task.context), task.num_layers, task.budget))


def by_question(batch: Sequence[Compression], sequences: int | None) -> Iterator[list[Row]]:
    """The rows that decode together: for a prompt, a row per setting of the batch that lacks its record.

    If `sequences` is a number, there are at most that many rows, and prompts that differ only in their seeds share a
    batch of rows.
    """
    prompts = {prompt.sample.id: prompt for compression in batch for prompt in compression.prompts}
    groups = _alike(prompts.values()) if sequences else [[prompt] for prompt in prompts.values()]
    for group in groups:
        pairs = [(compression, prompt) for prompt in group for compression in batch if compression.answers(prompt)]
        size = sequences or len(pairs)
        for start in range(0, len(pairs), size):
            yield [compression.row(prompt) for compression, prompt in pairs[start : start + size]]


def _alike(prompts: Iterable[Prompt]) -> list[list[Prompt]]:
    """Prompts of one context in groups whose answers differ only in their seeds; each greedy one is a group."""
    groups: dict[object, list[Prompt]] = {}
    for prompt in prompts:
        sample = prompt.sample
        key: object = sample.id
        if sample.sampling is not None:
            how = replace(sample.sampling, seed=0)
            ends = (sample.max_new_tokens, sample.stop_at_newline, sample.may_be_empty, sample.single_stop)
            key = (how, ends, tuple(prompt.question.tolist()))
        groups.setdefault(key, []).append(prompt)
    return list(groups.values())
