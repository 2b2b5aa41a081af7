"""Published sets of mathematics problems: their files, their hashes, and the scoring of answers."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvbench.benchmarks.published_data import given_or_fetched
from kvbench.errors import UserError
from kvbench.metrics.math_answers import expression_score, integer_score
from kvbench.utils.hashing import file_hash
from kvbench.utils.jsonl import read_rows
from kvbench.utils.links import held

RKV = "https://raw.githubusercontent.com/Zefan-Cai/R-KV/d15c9767e67c2bd9807128fecc35223fa2484a69"
LONGFLOW = "https://raw.githubusercontent.com/yisunlp/LongFLow/89a68d30ea28857fc8e1b229544a2cc23f52a43e"


@dataclass(frozen=True)
class ProblemSet:
    """A published set of problems, in a file with a known hash."""

    file: str
    url: str
    sha256: str
    fields: tuple[str, str]  # of a row: the problem, and its answer
    max_new_tokens: int
    score: Callable[[str, str], dict[str, float]]
    scored_by: tuple[str, ...]  # files of kvbench.metrics, for their versions


SETS = {
    "math500": ProblemSet(
        "math.jsonl",
        f"{RKV}/data/math.jsonl",
        "35dc41080a3680858b27fa7e0533d2d547825316fc5dafe5d316f4ccc5a06132",
        ("problem", "answer"),
        16_384,
        expression_score,
        ("math_answers",),
    ),
    "aime24": ProblemSet(
        "aime24.jsonl",
        f"{RKV}/data/aime24.jsonl",
        "af2b8bd2aa911b6333ad0df32f3ca05c7ae8ed10f1731f4372c8ae26990bf7ac",
        ("question", "answer"),
        32_768,
        integer_score,
        ("math_answers", "math_numbers"),
    ),
    "aime25": ProblemSet(
        "aime25.jsonl",
        f"{LONGFLOW}/data/aime25.jsonl",
        "37c812de093d31d34e9ec0ea87ed6ecedfd7e2cab0bd9d97202674d577b470a6",
        ("question", "true_answer"),
        32_768,
        integer_score,
        ("math_answers", "math_numbers"),
    ),
}


def rows_of(name: str, data_dir: str | None) -> list[dict[str, Any]]:
    """The rows of a set, from the user's folder or fetched once.

    Raises UserError where the file is not the published one.
    """
    problems = SETS[name]
    if data_dir is not None and not Path(data_dir).is_dir():
        raise UserError(f"benchmark.data_dir={data_dir!r} is not a folder")
    local = None if data_dir is None else str(held(Path(data_dir) / problems.file, Path(data_dir)))
    path = given_or_fetched("data_dir", local, problems.file, {problems.url: problems.sha256})
    if (actual := file_hash(path)) != problems.sha256:
        raise UserError(
            f"{path} is not the published one: its SHA-256 begins {actual[:16]}, not {problems.sha256[:16]}"
        )
    return read_rows(path, dict.fromkeys(problems.fields, str))
