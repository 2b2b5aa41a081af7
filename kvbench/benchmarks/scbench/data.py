"""SCBench's rows: a context with several questions about it, checked before anything is run."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvbench.benchmarks.published_data import DataSet
from kvbench.benchmarks.scbench.tasks import Task
from kvbench.errors import UserError
from kvbench.metrics.repoqa import FUNCTIONS
from kvbench.metrics.scbench import check_answers
from kvbench.utils.row_files import read_file

LAYOUTS = ("data/{file}.jsonl", "{file}.jsonl", "{file}/test-*.parquet", "data/{file}/test-*.parquet")
LETTERS = "ABCD"
# The subject of mf's questions, which the prompt repeats before the numbers.
_STATISTIC = re.compile(r"The .+ is")


@dataclass(frozen=True)
class Question:
    """One of the questions about a context."""

    kind: str
    fields: dict[str, str]  # for the templates
    answers: tuple[str, ...]  # for the metric
    spoken: str  # the answer in a conversation
    listed: bool = False  # whether the data have a list of answers, not a text
    name: str = ""  # repoqa: the function


@dataclass(frozen=True)
class Row:
    """A context and its questions."""

    context: str
    questions: list[Question]
    lang: str = ""  # repoqa: language and repository of the code
    repo: str = ""


def read(source: DataSet, tasks: Sequence[Task]) -> dict[str, list[Row]]:
    """The rows of each task. Raises UserError, which names the file, row and turn that are wrong."""
    layouts = {task.name: [layout.format(file=task.file) for layout in LAYOUTS] for task in tasks}
    files = source.files(layouts)
    return {task.name: [row for path in files[task.name] for row in _rows(path, task)] for task in tasks}


def _rows(path: Path, task: Task) -> list[Row]:
    rows = []
    for number, row in enumerate(read_file(path, {"multi_turns": list}, filled=("multi_turns",)), 1):
        try:
            rows.append(_row(row, task))
        except (ValueError, KeyError, TypeError) as error:
            reason = f"{error.args[0]!r} is missing" if isinstance(error, KeyError) else error
            raise UserError(f"{path}, row {number}: {reason}") from None
    return rows


def _row(row: dict[str, Any], task: Task) -> Row:
    context = row["context"] if row.get("context") is not None else row["input"]
    if not isinstance(context, str | list) or not context:
        raise ValueError("context must be a text, or mf's list of numbers, and not empty")
    code = {}
    if "repoqa" in task.limits:
        code = {key: _text(row, key) for key in ("lang", "repo")}
        if code["lang"] not in FUNCTIONS:
            raise ValueError(f"lang {code['lang']!r} is not one of {', '.join(FUNCTIONS)}")
    questions = []
    for place, turn in enumerate(row["multi_turns"], 1):
        try:
            questions.append(_question(turn, task))
        except (ValueError, TypeError) as error:
            raise ValueError(f"turn {place}: {error}") from None
        except KeyError as error:
            raise ValueError(f"turn {place}: {error.args[0]!r} is missing") from None
    return Row(str(context), questions, **code)


def _question(turn: dict[str, Any], task: Task) -> Question:
    kind = _text(turn, "task").removeprefix("scbench_") if task.mixed else task.name
    if kind not in task.limits:
        raise ValueError(f"task {kind!r} is not one of {', '.join(task.limits)}")
    text, answer = _text(turn, "input"), turn["answer"]
    if answer is None or answer in ("", []):
        raise ValueError("answer is empty")
    fields, name = {"input": text, "question": text}, ""
    listed = isinstance(answer, list)
    answers = tuple(map(str, answer)) if listed else (str(answer),)
    if kind == "choice_eng":
        options = turn["options"]
        if not isinstance(options, list) or len(options) != len(LETTERS) or answer not in options:
            raise ValueError("options must be four texts, one of them the answer")
        fields |= {f"OPTION_{letter}": option for letter, option in zip(LETTERS, options, strict=True)}
        answers = (answer, LETTERS[options.index(answer)])
    elif kind == "mf":
        statistic = _STATISTIC.search(text)
        if statistic is None:
            raise ValueError("input must say 'The … is'")
        check_answers(kind, answers)
        fields["prefix"] = f"What is {statistic[0].lower().removesuffix(' is')}?"
    elif kind == "repoqa":
        name = _text(turn, "name")
    return Question(kind, fields, answers, str(answer), listed, name)


def _text(row: dict[str, Any], key: str) -> str:
    if not isinstance(row[key], str) or not row[key]:
        raise ValueError(f"{key} must be a text that is not empty")
    return row[key]
