"""MATH-500 and AIME: short problems with long answers, drawn several times, for compression while decoding."""

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated

import pandas as pd
from pydantic import Field
from transformers import PreTrainedTokenizerBase

from kvbench.benchmarks.base import Benchmark, Sample, Sampling
from kvbench.benchmarks.published_data import given_or_fetched, select
from kvbench.benchmarks.python_texts import constants, proven
from kvbench.errors import UserError
from kvbench.metrics.math_answers import expression_score, integer_score
from kvbench.metrics.math_equality import check_installed
from kvbench.utils.checked import Names, NonNegative, Positive, Share, checked
from kvbench.utils.hashing import file_hash
from kvbench.utils.jsonl import read_rows

RKV = "https://raw.githubusercontent.com/Zefan-Cai/R-KV/d15c9767e67c2bd9807128fecc35223fa2484a69"
LONGFLOW = "https://raw.githubusercontent.com/yisunlp/LongFLow/89a68d30ea28857fc8e1b229544a2cc23f52a43e"
PROMPTS = {f"{RKV}/run_math.py": "c4eb8255c35fec04198045a550a8e640e2633932e9039fd2c2c52d76d72524d8"}
# SHA-256 of the prompt, the variable prompt_template of R-KV's run_math.py.
PROMPT = "8098e89f1f3eae8a3c46a90e392aff33cabaebeb94a263c81376b6c0d1e33566"


@dataclass(frozen=True)
class ProblemSet:
    """A published set of problems, in a file that its hash proves."""

    file: str
    url: str
    sha256: str
    fields: tuple[str, str]  # of a row: the problem, and its answer
    max_new_tokens: int
    score: Callable[[str, str], dict[str, float]]


SETS = {
    "math500": ProblemSet(
        *("math.jsonl", f"{RKV}/data/math.jsonl"),
        "35dc41080a3680858b27fa7e0533d2d547825316fc5dafe5d316f4ccc5a06132",
        ("problem", "answer"),
        16_384,
        expression_score,
    ),
    "aime24": ProblemSet(
        *("aime24.jsonl", f"{RKV}/data/aime24.jsonl"),
        "af2b8bd2aa911b6333ad0df32f3ca05c7ae8ed10f1731f4372c8ae26990bf7ac",
        ("question", "answer"),
        32_768,
        integer_score,
    ),
    "aime25": ProblemSet(
        *("aime25.jsonl", f"{LONGFLOW}/data/aime25.jsonl"),
        "37c812de093d31d34e9ec0ea87ed6ecedfd7e2cab0bd9d97202674d577b470a6",
        ("question", "true_answer"),
        32_768,
        integer_score,
    ),
}


@checked(prefix="benchmark.")
class MathProblems(Benchmark):
    """Problems of MATH-500 (Lightman et al. 2023) and AIME in R-KV's prompt, inside the model's chat template.

    Each is answered `repeats` times. The seed of an answer is a hash of `seed`, problem and repeat, so that it is the
    same for every setting. Samples are in order of repeats: the first ones are the first answers to all problems.

    temperature     0: the likeliest tokens, once.
    max_new_tokens  of an answer, thinking included; null: 16,384 for MATH-500, 32,768 for AIME.
    data_dir        a folder with math.jsonl, aime24.jsonl, aime25.jsonl as R-KV and LongFlow have them; null: fetched
                    once from there.
    prompts_file    R-KV's run_math.py; null: fetched once.
    """

    sets: Names
    repeats: Positive
    temperature: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.6
    top_p: Share = 0.95
    top_k: Positive | None = None
    max_new_tokens: Positive | None = None
    seed: NonNegative = 0
    data_dir: str | None = None
    prompts_file: str | None = None
    name: str = "math"
    rows: dict[str, list[dict]] = field(init=False, repr=False)

    longest = None  # prompts are as long as their problems
    metrics = ("correct", "boxed")

    def __post_init__(self):
        self.sets = select(self.sets, {name: (name,) for name in SETS}, "set in benchmark.sets")
        if self.temperature == 0 and self.repeats > 1:
            raise UserError("benchmark.temperature=0 gives the same answer each time: benchmark.repeats=1")
        if "math500" in self.sets:
            check_installed()
        source = given_or_fetched("prompts_file", self.prompts_file, "rkv-run_math.py", PROMPTS)
        template = constants(source).get("prompt_template")
        if not isinstance(template, str):
            raise UserError(f"{source} has no prompt_template: it is not R-KV's run_math.py")
        self.template = proven("prompt_template", template, PROMPT, source)
        self.rows = {
            name: read_rows(self._file(SETS[name]), dict.fromkeys(SETS[name].fields, str)) for name in self.sets
        }

    def samples(self, tokenizer: PreTrainedTokenizerBase) -> list[Sample]:
        return [
            self._sample(name, number, row, repeat)
            for repeat in range(1, self.repeats + 1)
            for name, rows in self.rows.items()
            for number, row in enumerate(rows, 1)
        ]

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        return SETS[sample.meta["task"]].score(prediction, sample.answers[0])

    def breakdown(self, records: pd.DataFrame) -> pd.DataFrame:
        """For each set and setting avg@k, pass@k, and what answers were like."""
        frame = records.assign(
            correct=[100 * scores["correct"] for scores in records["scores"]],
            boxed=[100 * scores["boxed"] for scores in records["scores"]],
            undecided=[100 * scores.get("undecided", 0) for scores in records["scores"]],
            tokens=records["tokens"].map(len),
        )
        frame["cut"] = 100.0 * (frame["tokens"] >= frame["max_new_tokens"])
        parts = [part for name in self.sets for part in self._parts(name, frame[frame["task"] == name])]
        return pd.DataFrame(parts)

    def _parts(self, name: str, frame: pd.DataFrame) -> list[dict]:
        settings = list(frame["setting"].unique())
        by_problem = frame.groupby(["setting", "context_id"], sort=False)
        count = int(by_problem.size().max()) if len(frame) else 0
        figures = {
            f"avg@{count}": by_problem["correct"].mean(),
            f"pass@{count}": by_problem["correct"].max(),
            "answers boxed, %": by_problem["boxed"].mean(),
            "answers cut, %": by_problem["cut"].mean(),
            "tokens of an answer": by_problem["tokens"].mean(),
        }
        if name == "math500":
            figures["comparisons undecided, %"] = by_problem["undecided"].mean()
        return [
            {"kind": name, "task": f"{name} {what}", "samples": frame["sample"].nunique()}
            | values.groupby(level="setting").mean().round(2).reindex(settings).to_dict()
            for what, values in figures.items()
            if count
        ]

    def _file(self, problems: ProblemSet) -> Path:
        if self.data_dir is not None and not Path(self.data_dir).is_dir():
            raise UserError(f"benchmark.data_dir={self.data_dir!r} is not a folder")
        given = None if self.data_dir is None else str(Path(self.data_dir) / problems.file)
        path = given_or_fetched("data_dir", given, problems.file, {problems.url: problems.sha256})
        if (actual := file_hash(path)) != problems.sha256:
            raise UserError(
                f"{path} is not the published one: its SHA-256 begins {actual[:16]}, not {problems.sha256[:16]}"
            )
        return path

    def _sample(self, name: str, number: int, row: dict, repeat: int) -> Sample:
        problem, answer = (row[key] for key in SETS[name].fields)
        sampling = None
        if self.temperature:
            seed = int.from_bytes(hashlib.sha256(f"{self.seed} {name} {number} {repeat}".encode()).digest()[:6], "big")
            sampling = Sampling(seed, self.temperature, self.top_p, self.top_k)
        limit = self.max_new_tokens or SETS[name].max_new_tokens
        meta = {"task": name, "repeat": repeat, "max_new_tokens": limit}
        return Sample(
            id=f"{name}:{number}:{repeat}",
            prompt=self.template.format(question=problem),
            answers=(answer,),
            max_new_tokens=limit,
            context_id=f"{name}:{number}",
            sampling=sampling,
            meta=meta | ({"subject": row["subject"], "level": row["level"]} if "level" in row else {}),
        )
