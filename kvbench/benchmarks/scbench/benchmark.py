"""SCBench as a benchmark."""

from collections.abc import Iterator
from dataclasses import field
from itertools import pairwise
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import Field

from kvbench.benchmarks.base import Benchmark, Sample, Turn
from kvbench.benchmarks.near_copies import units_of_tasks
from kvbench.benchmarks.published_data import DataSet, select
from kvbench.benchmarks.scbench import data, prompts
from kvbench.benchmarks.scbench.context_room import context_room
from kvbench.benchmarks.scbench.data import Question, Row
from kvbench.benchmarks.scbench.tasks import GROUPS, NAMES, NOT_SHARED, TASKS, Task
from kvbench.benchmarks.truncation import PromptText, without_middle
from kvbench.errors import UserError
from kvbench.metrics import repoqa, scbench
from kvbench.metrics.aggregate import breakdown
from kvbench.utils.chat_template import MARK, user_turn
from kvbench.utils.checked import Names, Positive, checked
from kvbench.utils.tokenizer import Tokenizer


@checked(prefix="benchmark.")
class SCBench(Benchmark):
    """SCBench (Li et al. 2024) with the official prompts, truncation, lengths and metrics.

    mode=shared        each question about a context is a separate prompt (the official multi-request mode); with
                       question=hidden the context is compressed once, without any question.
    mode=turns_golden  a conversation: context and first question are compressed; each later turn follows the expected
                       answer to the turn before it.
    mode=turns_own     the same with the model's own answers.

    num_contexts  the first contexts of each task; unlike with limit=, the others are not tokenised. None: all.

    Scores: the official one, and the same without the mistakes that `kvbench.metrics.scbench` lists.
    """

    scored_by = ("repoqa", "scbench")
    packages = ("rouge_score",)

    tasks: Names
    mode: Literal["shared", "turns_golden", "turns_own"]
    max_length: Annotated[int, Field(ge=2)]  # tokens of prompt and answers; longer contexts are cut in the middle
    max_turns: Positive = 5  # of each context
    num_contexts: Positive | None = None
    chat: bool = True
    data_dir: str | None = None
    repository: str = "microsoft/SCBench"
    revision: str = "main"
    prompts_file: str | None = None
    name: str = "scbench"
    chosen: list[Task] = field(init=False)
    rows: dict[str, list[Row]] = field(init=False, repr=False)

    metrics = ("official", "mended")

    def __post_init__(self) -> None:
        names = select(self.tasks, NAMES, "task in benchmark.tasks")
        if self.mode == "shared":
            if NOT_SHARED in self.tasks:
                raise UserError(f"benchmark.mode=shared: the shared context of {NOT_SHARED!r} has a question in it")
            names = [name for name in names if name != NOT_SHARED]
        self.chosen = [TASKS[name] for name in names]
        if any("repoqa" in task.limits for task in self.chosen):
            repoqa.check_parsers()
        self.templates = prompts.load(self.chosen, self.mode, self.chat, self.prompts_file)
        self.rows = data.read(DataSet(self.repository, self.revision, self.data_dir), self.chosen)
        self.functions = {
            task.name: repoqa.by_repository(
                (row.repo, question.name, question.spoken)
                for row in self.rows[task.name]
                for question in row.questions
                if question.kind == "repoqa"
            )
            for task in self.chosen
        }

    @property
    def longest(self) -> int:
        return self.max_length

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        rows = {task.name: self.rows[task.name][: self.num_contexts] for task in self.chosen}
        contexts = {name: [row.context for row in of_task] for name, of_task in rows.items()}
        units = units_of_tasks(contexts, {task.name for task in self.chosen if task.random})
        return [
            sample
            for task in self.chosen
            for number, (row, unit) in enumerate(zip(rows[task.name], units[task.name], strict=True))
            for sample in self._samples(task, number, row, unit, tokenizer)
        ]

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        meta = sample.meta
        if meta["question_kind"] == "repoqa":
            candidates = self.functions[meta["whole_task"]][meta["repo"]]
            return dict.fromkeys(self.metrics, repoqa.score(prediction, meta["function"], candidates, meta["lang"]))
        return scbench.score(meta["question_kind"], prediction, sample.answers, meta.get("listed", False))

    def breakdown(self, records: pd.DataFrame) -> pd.DataFrame:
        """One row per task, and means by group; of conversations one row per task and turn, and means by task."""
        parts = {task.name: [task.part(kind) for kind in task.limits] for task in TASKS.values()}
        if self.mode == "shared":
            groups = {group: [part for name in names for part in parts[name]] for group, names in GROUPS.items()}
            return breakdown(records, groups, {}, metric="official")
        turns = records.assign(task=records["task"] + " turn " + records["turn"].astype(str))
        order = range(1, self.max_turns + 1)
        groups = {part: [f"{part} turn {turn}" for turn in order] for names in parts.values() for part in names}
        return breakdown(turns, groups, {}, metric="official")

    def _samples(self, task: Task, number: int, row: Row, unit: str, tokenizer: Tokenizer) -> Iterator[Sample]:
        questions, texts = row.questions[: self.max_turns], self.templates[task.name]
        turns = min(self.max_turns, len(self.rows[task.name][0].questions))
        room = context_room(task, self.mode, questions, self.max_length, turns, tokenizer)
        fields = questions[0].fields
        tail = "" if self.mode == "shared" else texts.after.format(**fields)
        prompt = texts.before.format(**fields) + row.context + tail
        prompt, tail = self._cut(PromptText(prompt, tail), room, tokenizer)
        for turn, question in enumerate(questions, 1):
            if self.mode == "shared":
                tail = texts.after.format(**question.fields)
            elif task.name == NOT_SHARED:
                tail = ""  # its statistic is named before the context: nothing could be hidden
            yield Sample(
                id=f"{task.name}:{number}:{turn}",
                prompt=prompt + tail if self.mode == "shared" else prompt,
                answers=question.answers,
                max_new_tokens=task.limits[question.kind],
                question=tail,
                question_apart=self.mode == "shared",
                turns=() if self.mode == "shared" else self._turns(task, questions[:turn]),
                own_answers=self.mode == "turns_own",
                context_id=f"{task.name}:{number}",
                unit=unit,
                chat=self.chat,
                meta=_meta(task, row, question) | {"turn": turn},
            )

    def _cut(self, prompt: PromptText, room: int, tokenizer: Tokenizer) -> PromptText:
        """The prompt without its middle where it is longer than `room` tokens with the chat template around it."""
        head, _, end = user_turn(tokenizer, MARK).partition(MARK) if self.chat else ("", "", "")
        end = "" if self.mode == "shared" else end  # in the shared mode, the template ends after the question
        uncut = PromptText(head + prompt.text + end, prompt.question + end)
        (cut,) = without_middle([uncut], room, room // 2, tokenizer)
        if cut.text == uncut.text:
            return prompt
        head, end = (_decoded(part, tokenizer) for part in (head, end))
        if not (cut.text.startswith(head) and cut.text.endswith(end)):
            raise UserError(f"benchmark.max_length={self.max_length} leaves no room beside the model's chat template")
        return PromptText(cut.text.removeprefix(head).removesuffix(end), cut.question.removesuffix(end))

    def _turns(self, task: Task, questions: list[Question]) -> tuple[Turn, ...]:
        """The turns after the first prompt, up to the last of `questions`."""
        later = self.templates[task.name].later
        return tuple(
            Turn(
                later.format(**question.fields),
                "" if self.mode == "turns_own" else before.spoken,
                task.limits[before.kind],
            )
            for before, question in pairwise(questions)
        )


def _decoded(text: str, tokenizer: Tokenizer) -> str:
    """A text encoded and decoded, without special tokens."""
    return tokenizer.decode(tokenizer(text, add_special_tokens=False)["input_ids"], skip_special_tokens=True)


def _meta(task: Task, row: Row, question: Question) -> dict[str, Any]:
    """Columns of the record."""
    meta: dict[str, Any] = {
        "task": task.part(question.kind),
        "group": task.group,
        "whole_task": task.name,
        "question_kind": question.kind,
    }
    if question.listed and question.kind in scbench.BY_CHARACTER:
        meta["listed"] = True
    if question.kind == "repoqa":
        meta |= {"lang": row.lang, "repo": row.repo, "function": question.name}
    return meta
