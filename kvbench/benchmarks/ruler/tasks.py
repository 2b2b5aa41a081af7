"""RULER's 13 tasks as data (Hsieh et al. 2024, https://github.com/NVIDIA/RULER, scripts/synthetic.yaml)."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from kvbench.metrics.ruler import string_match_all, string_match_part


@dataclass(frozen=True)
class Task:
    """One task: its generator, the length and form of the answer, its metric."""

    kind: str  # niah, vt, cwe, fwe, qa: the official generator
    max_new_tokens: int
    match: str = "all"  # share of the answers that are in the prediction; part: whether any is
    tail: tuple[str, int] = ("\n", 1)  # the question: separator, and how many of the last pieces between separators
    prefix: str = " Answer:"  # the beginning of the answer's prefix
    source: str = ""  # niah: noise, essay or needle; qa: squad or hotpotqa
    keys: str = "words"  # niah: the type of keys and values: words, numbers, uuids
    values: str = "numbers"
    num_keys: int = 1
    num_values: int = 1
    num_queries: int = 1

    def score(self, prediction: str, answers: Sequence[str]) -> float:
        """The official metric of one sample."""
        return (string_match_all if self.match == "all" else string_match_part)(prediction, answers)


def _niah(source: str, **needles: Any) -> Task:
    return Task("niah", 128, prefix=" The special", source=source, **needles)


def _qa(source: str) -> Task:
    return Task("qa", 32, match="part", tail=("\n\n", 2), source=source)


TASKS = {
    "niah_single_1": _niah("noise"),
    "niah_single_2": _niah("essay"),
    "niah_single_3": _niah("essay", values="uuids"),
    "niah_multikey_1": _niah("essay", num_keys=4),
    "niah_multikey_2": _niah("needle"),
    "niah_multikey_3": _niah("needle", keys="uuids", values="uuids"),
    "niah_multivalue": _niah("essay", num_values=4),
    "niah_multiquery": _niah("essay", num_keys=4, num_queries=4),
    "vt": Task("vt", 30),
    "cwe": Task("cwe", 120),
    "fwe": Task("fwe", 50),
    "qa_1": _qa("squad"),
    "qa_2": _qa("hotpotqa"),
}

# RULER's categories
GROUPS = {
    "retrieval": tuple(name for name, task in TASKS.items() if task.kind == "niah"),
    "tracing": ("vt",),
    "aggregation": ("cwe", "fwe"),
    "qa": ("qa_1", "qa_2"),
}

TASK_SETS = {"all": tuple(TASKS), **GROUPS, **{name: (name,) for name in TASKS}}

# Columns of papers' tables: all needles, and tasks of one kind
MEANS = {"niah": GROUPS["retrieval"]} | {
    kind: tuple(name for name in TASKS if name.rpartition("_")[0] == kind)
    for kind in ("niah_single", "niah_multikey", "qa")
}
HEADERS = dict(
    pair.split("=")
    for pair in """
    niah_single=NIAH-S niah_multikey=NIAH-MK niah_multivalue=NIAH-MV niah_multiquery=NIAH-MQ cwe=CWE fwe=FWE qa=QA vt=VT
    """.split()
)
