"""The user's own prompts: a JSON-lines file with contexts or chats, questions, and answers and metrics to score by."""

from collections.abc import Iterator, Sequence
from dataclasses import field, replace
from pathlib import Path
from typing import Annotated, Any, Literal

import pandas as pd
from pydantic import BeforeValidator

from kvbench.benchmarks.base import Benchmark, Sample, text_unit
from kvbench.errors import UserError
from kvbench.metrics import answers as metrics
from kvbench.metrics.aggregate import breakdown
from kvbench.utils.checked import Positive, checked
from kvbench.utils.jsonl import checked_rows, numbered_rows
from kvbench.utils.tokenizer import Tokenizer


def _texts(value: object) -> list[str]:
    texts = [value] if isinstance(value, str) else value
    if not isinstance(texts, list) or not all(isinstance(text, str) and text.strip() for text in texts):
        raise ValueError("a text or a list of texts, none of them empty")
    return texts


def _if_null(default: Any) -> BeforeValidator:
    """null for a field that is left out, as tables and typed rows write one."""
    return BeforeValidator(lambda value: default() if value is None else value)


@checked(prefix="message.")
class Message:
    """One message of a chat."""

    role: Literal["system", "user", "assistant"]
    content: str


@checked(prefix="question.")
class Question:
    """One question about a context; fields that are None are taken from the row, then from the benchmark."""

    question: Annotated[str, _if_null(str)] = ""
    answers: Annotated[list[str], BeforeValidator(_texts)] | None = None  # the right answers; None: not known
    task: str | None = None
    metric: str | None = None
    max_new_tokens: Positive | None = None
    id: str | None = None
    meta: Annotated[dict[str, Any], _if_null(dict)] = field(default_factory=dict)  # columns of the record


@checked(prefix="row.")
class Row(Question):
    """One line of the file: a context with one or more questions, or a chat whose last message is the question."""

    context: str | None = None
    messages: list[Any] | None = None
    questions: list[Any] | None = None
    # names and texts of passages whose survival is recorded
    spans: Annotated[dict[str, str], _if_null(dict)] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if (self.context is None) == (self.messages is None):
            raise UserError("a row has either a context or messages")
        if self.messages is not None:
            self.messages = _parsed(Message, self.messages, "messages")
            if not self.messages or self.messages[-1].role != "user":
                raise UserError("the last message must have the role user: it is the question")
            if self.question or self.questions:
                raise UserError("the last message is the question: the row cannot have another one")
        elif self.context is not None and not self.context.strip():
            raise UserError("row.context is empty")
        for name, text in self.spans.items():
            if not text.strip():
                raise UserError(f"row.spans has no text under {name!r}")
        if self.questions is not None:
            self.questions = _parsed(Question, self.questions, "questions")
            if not self.questions or self.question or self.answers:
                raise UserError(
                    "questions must be a list of objects with question and answers, which the row cannot have elsewhere"
                )

    def all_questions(self) -> list[Question]:
        """The row's questions, with the fields that they take from the row."""
        if self.questions is None:
            return [self]
        return [
            replace(
                question,
                meta=self.meta | question.meta,
                task=self.task if question.task is None else question.task,
                metric=self.metric if question.metric is None else question.metric,
                max_new_tokens=self.max_new_tokens if question.max_new_tokens is None else question.max_new_tokens,
            )
            for question in self.questions
        ]


def _parsed(form: type, values: Sequence[Any], name: str) -> list[Any]:
    """`values` as objects of `form`."""
    objects = []
    for number, value in enumerate(values, 1):
        if not isinstance(value, dict):
            raise UserError(f"item {number} of {name} is not an object")
        try:
            objects.append(form(**value))
        except UserError as error:
            raise UserError(f"item {number} of {name}: {error}") from None
    return objects


@checked(prefix="benchmark.")
class OwnPrompts(Benchmark):
    """The rows of a JSON-lines file, each a `Row`; docs/own-prompts.md describes them.

    A prompt is the context, an empty line and the question, as one user turn of the chat template; a chat is its
    messages. A row without answers has no score, only a distance from FullKV.

    path            the file; UTF-8.
    metric          of rows without one: contains, exact, f1, rouge_l, choice, or module.function, which is called
                    with the prediction and the list of answers and returns a number from 0 to 1; not in a row.
    max_new_tokens  of rows without it.
    chat            false: raw text, even for a model with a chat template.
    """

    metrics = tuple(["score"])
    scored_by = ("answers",)

    path: str | None
    metric: str = "f1"
    max_new_tokens: Positive = 64
    chat: bool = True
    name: str = "jsonl"
    samples_read: list[Sample] = field(init=False, repr=False)
    row_of: dict[str, int] = field(init=False, repr=False)  # by the sample's id
    longest = None  # prompts have any length

    def __post_init__(self) -> None:
        if self.path is None:
            raise UserError("set benchmark.path=FILE to a JSON-lines file with your prompts")
        if Path(self.path).is_dir():
            raise UserError(f"benchmark.path={self.path!r} is a folder, not a file")
        self.file = self.path
        metrics.check(self.metric)
        self.row_of = {}
        self.samples_read = list(self._samples())
        self.metrics = ("score",) if any(map(_scored, self.samples_read)) else ()
        rouge = any(sample.meta.get("metric", self.metric) == "rouge_l" for sample in self.samples_read)
        self.packages = ("rouge_score",) if rouge else ()

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        return self.samples_read

    def place_of(self, sample: Sample) -> str:
        return f"{self.path}, row {self.row_of[sample.id]}" if sample.id in self.row_of else ""

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        if not _scored(sample):
            return {}
        return {"score": metrics.score(sample.meta["metric"], prediction, sample.answers)}

    def breakdown(self, records: pd.DataFrame) -> pd.DataFrame | None:
        """A row per task, where the file has several tasks; None without a score, which `limit` may leave none of."""
        scored = records[records["scores"].map(bool)]
        if scored.empty or records["task"].nunique() < 2:
            return None
        return breakdown(scored, {task: [task] for task in scored["task"].unique()}, {})

    def _samples(self) -> Iterator[Sample]:
        rows: list[Row] = []
        numbered = [*numbered_rows(Path(self.file))]  # by lines, of which some may be blank
        checked_rows(self.file, numbered, {}, check=lambda row: rows.append(self._row(row)))
        for number, ((line, _), row) in enumerate(zip(numbered, rows, strict=True), 1):
            questions = row.all_questions()
            for place, question in enumerate(questions, 1):
                default = f"{row.id or number}" if len(questions) == 1 else f"{row.id or number}.{place}"
                sample = self._sample(row, question, question.id or default)
                if sample.id in self.row_of:
                    first = self.row_of[sample.id]
                    raise UserError(f"{self.path}, row {line}: the id {sample.id!r} is also in row {first}")
                self.row_of[sample.id] = line
                yield sample

    def _row(self, values: dict[str, Any]) -> Row:
        """A checked row. To its UserErrors, `checked_rows` adds the file and the row's number."""
        row = Row(**values)
        for question in row.all_questions():
            for name in ("task", "metric"):
                if name in question.meta:
                    raise UserError(f"{name} is a field of the row, not of its meta")
            if question.metric is not None:
                metrics.check_row(question.metric)
            metrics.check(_metric(question, self.metric), question.answers or ())
        return row

    def _sample(self, row: Row, question: Question, name: str) -> Sample:
        metric = _metric(question, self.metric)
        meta = {"task": question.task or Path(self.file).stem, "metric": metric}
        if (sha256 := metrics.source(metric)) is not None:
            meta["metric_sha256"] = sha256
        text = question.question
        history: tuple[tuple[str, str], ...] = ()
        if row.messages is not None:
            *before, last = row.messages
            text, history = last.content, tuple((message.role, message.content) for message in before)
        return Sample(
            id=name,
            prompt=text if row.context is None else "\n\n".join(filter(None, [row.context, text])),
            answers=tuple(question.answers or ()),
            max_new_tokens=question.max_new_tokens or self.max_new_tokens,
            question=text,
            history=history,
            chat=self.chat,
            spans=tuple(row.spans.items()),
            unit=_unit(row),
            meta=question.meta | meta,
        )


def _unit(row: Row) -> str:
    """The text that a row is about: its context, or a chat's longest message unless that is the last one.

    A short system message that many chats begin with is not their text.
    """
    if row.messages is None:
        return text_unit(row.context or "")
    *before, last = (message.content for message in row.messages)
    longest = max(before, key=len, default="")
    return text_unit(longest) if len(longest) > len(last) else ""


def _metric(question: Question, otherwise: str) -> str:
    return otherwise if question.metric is None else question.metric


def _scored(sample: Sample) -> bool:
    """Whether a prediction has a score: a function can score without an answer."""
    return bool(sample.answers) or metrics.is_function(sample.meta["metric"])
