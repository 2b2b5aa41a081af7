"""MATH-500 and AIME: short problems with long answers, each sampled several times, for compression while decoding."""

import hashlib
from dataclasses import field
from typing import Annotated, Any

import pandas as pd
from pydantic import Field

from kvbench.benchmarks.base import Benchmark, Sample, Sampling
from kvbench.benchmarks.math_sets import RKV, SETS, rows_of
from kvbench.benchmarks.published_data import given_or_fetched, select
from kvbench.benchmarks.python_texts import constants, proven
from kvbench.errors import UserError
from kvbench.metrics.math_equality import check_installed
from kvbench.utils.checked import Names, NonNegative, Positive, Share, checked
from kvbench.utils.tokenizer import Tokenizer

PROMPTS = {f"{RKV}/run_math.py": "c4eb8255c35fec04198045a550a8e640e2633932e9039fd2c2c52d76d72524d8"}
# SHA-256 of the prompt, the variable prompt_template of R-KV's run_math.py.
PROMPT = "8098e89f1f3eae8a3c46a90e392aff33cabaebeb94a263c81376b6c0d1e33566"


@checked(prefix="benchmark.")
class MathProblems(Benchmark):
    """Problems of MATH-500 (Lightman et al. 2023) and AIME in R-KV's prompt, inside the model's chat template.

    Each is answered `repeats` times. The seed of an answer is a hash of `seed`, problem and repeat, so that it is the
    same for every setting. Samples are in order of repeats: the first answer to every problem, then the second.

    temperature     0: the likeliest tokens; needs repeats=1.
    max_new_tokens  of an answer, thinking included; null: 16,384 for MATH-500, 32,768 for AIME.
    data_dir        a folder with R-KV's math.jsonl and aime24.jsonl, and LongFlow's aime25.jsonl; null: fetched once.
    prompts_file    R-KV's run_math.py; null: fetched once.
    """

    scored_by = tuple(dict.fromkeys(file for problems in SETS.values() for file in problems.scored_by))

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
    rows: dict[str, list[dict[str, Any]]] = field(init=False, repr=False)

    longest = None  # prompts are as long as their problems
    metrics = tuple("correct boxed undecided".split())

    def __post_init__(self) -> None:
        self.metrics = ("correct", "boxed")  # tasks.md alone has the share of comparisons that were undecided
        self.sets = select(self.sets, {name: (name,) for name in SETS}, "set in benchmark.sets")
        self.scored_by = tuple(dict.fromkeys(file for name in self.sets for file in SETS[name].scored_by))
        if self.temperature == 0 and self.repeats > 1:
            raise UserError("benchmark.temperature=0 gives the same answer each time: set benchmark.repeats=1")
        if "math500" in self.sets:
            check_installed()
        source = given_or_fetched("prompts_file", self.prompts_file, "rkv-run_math.py", PROMPTS)
        template = constants(source).get("prompt_template")
        if not isinstance(template, str):
            raise UserError(f"{source} has no prompt_template: it is not R-KV's run_math.py")
        self.template = proven("prompt_template", template, PROMPT, source)
        self.rows = {name: rows_of(name, self.data_dir) for name in self.sets}

    def samples(self, tokenizer: Tokenizer) -> list[Sample]:
        return [
            self._sample(name, number, row, repeat)
            for repeat in range(1, self.repeats + 1)
            for name, rows in self.rows.items()
            for number, row in enumerate(rows, 1)
        ]

    def score(self, sample: Sample, prediction: str) -> dict[str, float]:
        return SETS[sample.meta["task"]].score(prediction, sample.answers[0])

    def breakdown(self, records: pd.DataFrame) -> pd.DataFrame:
        """For each set and setting avg@k, pass@k, and figures about the answers."""
        frame = records.assign(
            correct=[100 * scores["correct"] for scores in records["scores"]],
            boxed=[100 * scores["boxed"] for scores in records["scores"]],
            undecided=[100 * scores.get("undecided", 0) for scores in records["scores"]],
            tokens=records["tokens"].map(len),
        )
        frame["cut"] = 100.0 * (frame["tokens"] >= frame["max_new_tokens"])
        parts = [part for name in self.sets for part in self._parts(name, frame[frame["task"] == name])]
        return pd.DataFrame(parts)

    def _parts(self, name: str, frame: pd.DataFrame) -> list[dict[str, Any]]:
        settings = list(frame["setting"].unique())
        by_problem = frame.groupby(["setting", "context_id"], sort=False)
        count = int(by_problem.size().max()) if len(frame) else 0
        whole = by_problem.size() == count  # of fewer answers one is right less often
        figures = {
            f"avg@{count}": by_problem["correct"].mean(),
            f"pass@{count}": by_problem["correct"].max()[whole],
            "answers boxed, %": by_problem["boxed"].mean(),
            "answers cut, %": by_problem["cut"].mean(),
            "tokens of an answer": by_problem["tokens"].mean(),
        }
        if name == "math500":
            figures["comparisons undecided, %"] = by_problem["undecided"].mean()
        return [
            {"kind": "task" if "@" in what else name, "task": f"{name} {what}", "samples": frame["sample"].nunique()}
            | values.groupby(level="setting").mean().round(2).reindex(settings).to_dict()
            for what, values in figures.items()
            if count
        ]

    def _sample(self, name: str, number: int, row: dict[str, Any], repeat: int) -> Sample:
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
