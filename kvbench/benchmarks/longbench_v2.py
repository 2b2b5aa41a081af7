"""LongBench v2 as a benchmark."""

from dataclasses import field
from pathlib import Path
from typing import Annotated, Any

import pandas as pd
from pydantic import Field

from kvbench.benchmarks.base import Benchmark, Sample
from kvbench.benchmarks.near_copies import text_units
from kvbench.benchmarks.published_data import DataSet, given_or_fetched, select
from kvbench.benchmarks.python_texts import proven
from kvbench.benchmarks.truncation import TEMPLATE_ROOM, PromptText, without_middle
from kvbench.errors import UserError
from kvbench.metrics.aggregate import breakdown
from kvbench.metrics.longbench_v2 import score
from kvbench.utils.checked import Names, Positive, checked
from kvbench.utils.regular_files import read_bytes
from kvbench.utils.row_files import read_file
from kvbench.utils.tokenizer import Tokenizer

NEW_TOKENS = 128
LENGTHS = ("short", "medium", "long")  # to 32k words, to 128k words, longer
DIFFICULTIES = ("easy", "hard")
LETTERS = ("A", "B", "C", "D")
TEXTS = ("_id", "domain", "sub_domain", "difficulty", "length", "question", "answer", "context")
FIELDS = {name: str for name in (*TEXTS, *(f"choice_{letter}" for letter in LETTERS))}
LAYOUTS = ("data.json", "data.jsonl", "*.parquet", "data/*.parquet", "data-*.arrow", "train/data-*.arrow")
# prompts/0shot.txt of LongBench's repository
SHA256 = "68a162252bc9ff71d5d7abca3d69bb31aac3c35f832d657a2866f2018b8a6950"
URL = "https://raw.githubusercontent.com/THUDM/LongBench/2e00731f8d0bff23dc4325161044d0ed8af94c1e/prompts/0shot.txt"


@checked(prefix="benchmark.")
class LongBenchV2(Benchmark):
    """LongBench v2 (Bai et al. 2024): questions with four choices, without chain of thought.

    Prompts, truncation, 128 new tokens and the extraction of the choice are the official ones; decoding is greedy,
    where the official code samples at temperature 0.1.

    max_length   tokens before the chat template, special tokens included; longer prompts are cut in the middle.
    lengths      the lengths of rows to read.
    asked_last   only rows whose question and choices follow the whole document, for question=hidden. The official code
                 also replaces the template's marks in a document ("$Q$" in a formula), which then has the question.
    num_samples  the first of these rows; unlike with limit=, the others are not tokenised. None: all.
    """

    scored_by = ("longbench_v2",)

    max_length: Annotated[int, Field(ge=64)]
    lengths: Names = field(default_factory=lambda: list(LENGTHS))
    asked_last: bool = False
    num_samples: Positive | None = None
    data_dir: str | None = None
    repository: str = "zai-org/LongBench-v2"
    revision: str = "main"
    prompts_file: str | None = None
    name: str = "longbench_v2"
    template: str = field(init=False, repr=False)
    rows: list[dict[str, Any]] = field(init=False, repr=False)

    metrics = ("score", "compensated")

    def __post_init__(self) -> None:
        self.lengths = select(self.lengths, {name: (name,) for name in LENGTHS}, "length in benchmark.lengths")
        self.template = _template(self.prompts_file)
        files = DataSet(self.repository, self.revision, self.data_dir).files({"the rows": LAYOUTS})["the rows"]
        rows = [row for file in files for row in _rows(file)]
        chosen = [row for row in rows if row["length"] in self.lengths and (not self.asked_last or _asked_last(row))]
        self.rows = chosen[: self.num_samples]
        if not self.rows:
            raise UserError(f"{files[0].parent} has no rows of benchmark.lengths={self.lengths}")

    @property
    def longest(self) -> int:
        return self.max_length + TEMPLATE_ROOM + NEW_TOKENS

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        ending = self.template.partition("$DOC$")[2]
        uncut = [PromptText(_filled(self.template, row), _filled(ending, row)) for row in self.rows]
        last = -(-self.max_length // 2)  # of an odd length, the official slice leaves the greater half to the end
        cut = without_middle(uncut, self.max_length, last, tokenizer)
        units = text_units([row["context"] for row in self.rows])
        return [self._sample(*parts) for parts in zip(self.rows, units, uncut, cut, strict=True)]

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        return score(prediction, sample.answers[0])

    def breakdown(self, records: pd.DataFrame) -> pd.DataFrame:
        """The official rows: overall, by difficulty and by length, in per cent with one decimal."""
        parts = [records.assign(task="overall")]
        parts += [records.assign(task=records[column]) for column in ("difficulty", "length")]
        rows = {name: [name] for name in ("overall", *DIFFICULTIES, *LENGTHS)}
        return breakdown(pd.concat(parts), rows, None, of_task=lambda scores: round(100 * sum(scores) / len(scores), 1))

    def _sample(self, row: dict[str, Any], unit: str, uncut: PromptText, cut: PromptText) -> Sample:
        about = {key: row[key] for key in ("domain", "sub_domain", "difficulty", "length")}
        return Sample(
            id=row["_id"],
            prompt=cut.text,
            answers=(row["answer"],),
            max_new_tokens=NEW_TOKENS,
            question=cut.question if _asked_last(row) else "",
            unit=unit,
            meta={"task": self.name, **about, "cut": cut.text != uncut.text},
        )


def _asked_last(row: dict[str, Any]) -> bool:
    """Whether the document has no mark that `_filled` replaces by the question or by a choice."""
    return not any(mark in row["context"] for mark in ("$Q$", *(f"$C_{letter}$" for letter in LETTERS)))


def _filled(template: str, row: dict[str, Any]) -> str:
    """The template with a row's fields instead of its marks.

    Marks are replaced one after the other, as in the official code: a mark inside an earlier field is replaced too.
    """
    text = template.replace("$DOC$", row["context"].strip()).replace("$Q$", row["question"].strip())
    for letter in LETTERS:
        text = text.replace(f"$C_{letter}$", row[f"choice_{letter}"].strip())
    return text


def _template(prompts_file: str | None) -> str:
    path = given_or_fetched("prompts_file", prompts_file, "longbench-v2-0shot.txt", {URL: SHA256})
    try:
        text = read_bytes(path).decode("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"benchmark.prompts_file={str(path)!r} cannot be read: {error}") from error
    return proven("the prompt", text, SHA256, path)


def _rows(file: Path) -> list[dict[str, Any]]:
    rows = read_file(file, FIELDS, filled=("context", "question"), unique="_id")
    allowed = {"answer": LETTERS, "difficulty": DIFFICULTIES, "length": LENGTHS}
    for number, row in enumerate(rows, 1):
        for key, values in allowed.items():
            if row[key] not in values:
                raise UserError(f"{file}, row {number}: {key} {row[key]!r} is not one of {', '.join(values)}")
    return rows
