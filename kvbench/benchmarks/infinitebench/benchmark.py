"""InfiniteBench as a benchmark."""

import json
from collections.abc import Iterator
from dataclasses import field
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from pydantic import Field

from kvbench.benchmarks.base import Benchmark, Sample
from kvbench.benchmarks.infinitebench import prompts
from kvbench.benchmarks.infinitebench.tasks import GROUPS, SETS, TASKS
from kvbench.benchmarks.near_copies import units_of_tasks
from kvbench.benchmarks.published_data import DataSet
from kvbench.benchmarks.truncation import TEMPLATE_ROOM, decoded_without_middle
from kvbench.errors import UserError
from kvbench.metrics.aggregate import breakdown
from kvbench.metrics.infinitebench import check_answers, score
from kvbench.utils.checked import Names, Positive, checked
from kvbench.utils.jsonl import FieldType
from kvbench.utils.row_files import read_file
from kvbench.utils.tokenizer import Tokenizer

CHOICES = ("longbook_choice_eng", "code_debug")
FIELDS: dict[str, FieldType | tuple[FieldType, ...]] = {
    "context": str,
    "input": str,
    "answer": (list, str),
    "options": list,
}
LAYOUTS = ("{task}.jsonl", "{task}.json", "{task}-*.parquet", "data/{task}-*.parquet", "{task}/*.parquet")


@checked(prefix="benchmark.")
class InfiniteBench(Benchmark):
    """InfiniteBench (Zhang et al. 2024) with the official prompts, truncation and metrics.

    templates="gpt4"          the templates of GPT-4, as one user turn of the chat template: for instruct models.
    templates="yarn_mistral"  the templates of the open models, which the answer completes: raw text. Their official
                              limits of answers would cut a sentence of a chat before its key or letter.

    max_length   tokens before the chat template, special tokens included; longer prompts are cut in the middle.
    num_samples  the first rows of each task; unlike with limit=, the others are not tokenised. None: all.
    """

    version = 2  # 1: the open models' limits of answers, with GPT-4's templates too
    scored_by = ("infinitebench",)
    packages = ("rouge_score",)

    tasks: Names
    max_length: Annotated[int, Field(ge=64)]
    templates: prompts.Family = "gpt4"
    num_samples: Positive | None = None
    data_dir: str | None = None
    repository: str = "xinrongzhang2022/InfiniteBench"
    revision: str = "main"
    prompts_file: str | None = None
    name: str = "infinitebench"
    chosen: list[str] = field(init=False)
    rows: dict[str, list[dict[str, Any]]] = field(init=False, repr=False)

    metrics = ("score",)
    task_sets = SETS

    def __post_init__(self) -> None:
        self.chosen = self.tasks_of(self.tasks)
        self.texts = prompts.load(self.templates, self.chosen, self.prompts_file)
        layouts = {task: [layout.format(task=task) for layout in LAYOUTS] for task in self.chosen}
        files = DataSet(self.repository, self.revision, self.data_dir).files(layouts)
        rows = {task: [row for file in files[task] for row in _rows(task, file)] for task in self.chosen}
        self.rows = {task: of_task[: self.num_samples] for task, of_task in rows.items()}

    @property
    def longest(self) -> int | None:
        """None with math_calc, which has long answers and short prompts."""
        if "math_calc" in self.chosen:
            return None
        return self.max_length + TEMPLATE_ROOM + max(TASKS[task].max_new_tokens(self.chat) for task in self.chosen)

    @property
    def chat(self) -> bool:
        return self.templates == "gpt4"

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        contexts = {task: [row["context"] for row in rows] for task, rows in self.rows.items()}
        units = units_of_tasks(contexts, {task for task in self.chosen if TASKS[task].random})
        return [sample for task in self.chosen for sample in self._samples(task, units[task], tokenizer)]

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        return {"score": score(sample.meta["task"], prediction, sample.answers)}

    def breakdown(self, records: pd.DataFrame) -> pd.DataFrame:
        return breakdown(records, GROUPS, {"average": tuple(TASKS)})

    def _samples(self, name: str, units: list[str], tokenizer: Tokenizer) -> Iterator[Sample]:
        task, rows = TASKS[name], self.rows[name]
        uncut = [prompts.fill(name, self.texts[name], row) for row in rows]
        last = last_tokens(self.templates, self.max_length)
        cut = decoded_without_middle(uncut, self.max_length, last, tokenizer)
        parts = zip(rows, units, uncut, cut, strict=True)
        for number, (row, unit, (before, _), (prompt, question)) in enumerate(parts, 1):
            yield Sample(
                id=f"{name}-{number}",
                prompt=prompt,
                answers=_answers(name, row),
                max_new_tokens=task.max_new_tokens(self.chat),
                question=question if task.asked_last else "",
                chat=self.chat,
                unit=unit,
                meta={"task": name, "group": task.group, "templates": self.templates, "cut": prompt != before},
            )


def last_tokens(templates: prompts.Family, max_length: int) -> int:
    """Tokens at the end of a cut prompt: the greater half of an odd length, or one less in the open models' code."""
    return -(-max_length // 2) if templates == "gpt4" else max_length // 2


def _rows(task: str, file: Path) -> list[dict[str, Any]]:
    rows = read_file(file, FIELDS, filled=("context", "answer"))
    for number, row in enumerate(rows, 1):
        try:
            answers = _answers(task, row)
            if task in ("code_run", "math_find"):
                prompts.fill(task, "{context}", row)
            check_answers(task, answers)
        except ValueError as error:
            raise UserError(f"{file}, row {number}: {error}") from None
    return rows


def _answers(task: str, row: dict[str, Any]) -> tuple[str, ...]:
    """The accepted texts; of a choice its text and letter, as in the official get_answer."""
    answers = [row["answer"]] if isinstance(row["answer"], str) else row["answer"]
    if task == "math_calc":
        return (json.dumps(answers[0] if isinstance(answers[0], list) else answers),)
    if task not in CHOICES:
        return tuple(str(answer) for answer in answers)
    if len(row["options"]) != 4:
        raise ValueError(f"field 'options' has {len(row['options'])} of the 4 options")
    if len(answers) == 2 and answers[1] in ("A", "B", "C", "D"):
        return tuple(answers)
    if len(answers) != 1 or answers[0] not in row["options"]:
        raise ValueError("field 'answer' is not one of the options")
    return answers[0], "ABCD"[row["options"].index(answers[0])]
