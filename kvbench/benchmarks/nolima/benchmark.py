"""NoLiMa as a benchmark."""

import random
from collections.abc import Iterator
from dataclasses import field
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd

from kvbench.benchmarks.base import Benchmark, Heatmap, Sample
from kvbench.benchmarks.niah.ranges import Depths, Lengths
from kvbench.benchmarks.nolima.book import Book
from kvbench.benchmarks.nolima.needles import CHARACTER, Case, read
from kvbench.benchmarks.published_data import given_or_fetched
from kvbench.benchmarks.python_texts import constants, proven
from kvbench.errors import UserError
from kvbench.metrics.aggregate import breakdown
from kvbench.metrics.nolima import METRICS, SHORT, base_score, effective_length
from kvbench.utils.checked import NonNegative, Positive, checked
from kvbench.utils.files import visible
from kvbench.utils.links import held
from kvbench.utils.tokenizer import Tokenizer

NEW_TOKENS = 192
ROOM = 300  # tokens of needle, question, template and chat template, which a length does not count
SHA256 = "e6167bd1232798601988f4b53017a78414023cccd07b1c136c4415b087ea6754"
PUBLISHED = {
    "https://raw.githubusercontent.com/adobe-research/NoLiMa/7532e4eebf095c5540dc256900a63968da58a9d0/"
    "evaluation/run_tests.py": "3ad47595b8bc6b96f26a6ebacc7eb9aaa4efe75dd787fc697f8120c3d4c83fcc"
}
BOOKS = "haystack/rand_shuffle/*.txt"
WHERE = "hf download amodaresi/NoLiMa --repo-type dataset --local-dir FOLDER (non-commercial research licence)"


@checked(prefix="benchmark.")
class NoLiMa(Benchmark):
    """NoLiMa (Modarressi et al. 2025): lengths × books × needles and questions × depths, from the user's copy.

    Needles, places, names, prompts and the metric are the official ones. Books are numbered in the order of their
    names, which decides the names drawn; the official code takes the order of the file system.

    lengths     tokens of the book's text in the model's tokenizer, without needle and question.
    needle_set  the file in needlesets/ without its ending.
    books       the number of books, from the first on.
    metric      whether a right answer is in the prediction, or in its last line: for sets that ask to reason first.
    system      the system message; empty: none.
    seed        shuffles the samples of each length, so that limit= takes a share of all; None: the official order.
    """

    scored_by = ("nolima",)

    data_dir: str | None
    lengths: Lengths
    depths: Depths
    needle_set: str = "needle_set"
    books: Positive = 5
    metric: Literal["contains", "lastline_contains"] = "contains"
    system: str = ""
    prompts_file: str | None = None
    seed: NonNegative | None = None
    name: str = "nolima"
    tests: list[Case] = field(init=False, repr=False)
    files: list[Path] = field(init=False, repr=False)

    metrics = ("score",)

    def __post_init__(self) -> None:
        if self.data_dir is None:
            raise UserError(f"set benchmark.data_dir=FOLDER to a copy of NoLiMa's data: {WHERE}")
        folder = Path(self.data_dir)
        needles = folder / "needlesets" / f"{self.needle_set}.json"
        self.files = visible(folder, BOOKS)[: self.books]
        for pattern, exists in ((f"needlesets/{self.needle_set}.json", needles.is_file()), (BOOKS, self.files)):
            if not exists:
                raise UserError(f"{folder} does not have NoLiMa's {pattern}: {WHERE}")
        for path in (needles, *self.files):
            held(path, folder)
        self.tests = read(needles)
        if any(test.template is None for test in self.tests):
            self.template = _template(self.prompts_file)

    @property
    def longest(self) -> int:
        return max(self.lengths) + ROOM + NEW_TOKENS

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        books = [Book(file, tokenizer) for file in self.files]
        samples = []
        for length in self.lengths:
            of_length = [sample for number, book in enumerate(books) for sample in self._samples(length, number, book)]
            if self.seed is not None:
                random.Random(f"{self.seed} {length}").shuffle(of_length)
            samples += of_length
        return samples

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        return {"score": METRICS[self.metric](prediction, sample.answers)}

    def heatmap(self, records: pd.DataFrame) -> Heatmap:
        return Heatmap(records, "score")

    def breakdown(self, records: pd.DataFrame) -> pd.DataFrame:
        """One row per length; with the lengths 250, 500 and 1000, the base score and the effective length."""
        lengths = sorted(records["length"].unique())
        table = breakdown(records, {str(length): [str(length)] for length in lengths}, None)
        if not {*SHORT} <= {*lengths}:
            return table
        frame = records.assign(score=[100 * scores["score"] for scores in records["scores"]])
        rows: dict[str, dict[str, Any]] = {
            name: {"kind": kind, "task": name}
            for kind, name in (("average", "base score"), ("length", "effective length"))
        }
        for row in rows.values():
            row["samples"] = int(table["samples"].sum())
        for setting, group in frame.groupby("setting", sort=False):
            by_test = group.groupby(["test", "length"])["score"].mean().unstack().dropna(subset=[*SHORT])
            if by_test.empty:
                continue
            base = base_score(by_test.to_dict("index"))
            rows["base score"][setting] = round(base, 2)
            rows["effective length"][setting] = effective_length(group.groupby("length")["score"].mean(), base)
        return pd.concat([table, pd.DataFrame(rows.values())], ignore_index=True)

    def _samples(self, length: int, number: int, book: Book) -> Iterator[Sample]:
        around = cache(book.around)
        for test in self.tests:
            names = np.random.RandomState(test.seed + number)
            for depth in self.depths:
                name = str(names.choice(test.characters)) if CHARACTER in test.needle else None
                needle, question = (text.replace(CHARACTER, name or CHARACTER) for text in (test.needle, test.question))
                before, after = around(length, depth / 100)
                template = test.template or self.template
                asked_before, _, asked_after = template.partition("{haystack}")
                prompt = template.format(haystack=f"{before} {needle}\n{after}", question=question)
                yield Sample(
                    id=f"{test.name}-{book.path.stem}-{length}-{depth:g}",
                    prompt=prompt,
                    answers=test.golds if name is None else (name,),
                    max_new_tokens=NEW_TOKENS,
                    question="" if "{question}" in asked_before else asked_after.format(question=question),
                    history=(("system", self.system),) if self.system else (),
                    unit=f"book {book.path.stem}",
                    meta={
                        "task": str(length),
                        "length": length,
                        "depth": depth,
                        "test": test.name,
                        "hop": test.hop,
                        "book": book.path.stem,
                    },
                )


def _template(prompts_file: str | None) -> str:
    path = given_or_fetched("prompts_file", prompts_file, "nolima-run_tests.py", PUBLISHED)
    text = constants(path).get("DEFAULT_TASK_TEMPLATE")
    if not isinstance(text, str):
        raise UserError(f"{path} has no DEFAULT_TASK_TEMPLATE: it is not NoLiMa's evaluation/run_tests.py")
    return proven("the prompt", text, SHA256, path)
