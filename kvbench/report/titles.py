"""The titles of a page's runs: what distinguishes each from the others."""

from collections.abc import Sequence
from typing import Any

FACTS = ("benchmark", "model", "dtype", "question", "memory")


def titles(runs: Sequence[dict[str, Any]]) -> list[str]:
    """For each run the facts in which the runs differ ("smollm2-135m · hidden"), or its folder's name.

    The name is added where several runs share all facts; where no fact differs, it stands alone.
    """
    differ = [fact for fact in FACTS if len({run["facts"][fact] for run in runs}) > 1]
    made = [" · ".join(_words(fact, run["facts"][fact]) for fact in differ) for run in runs]
    return [
        title if title and made.count(title) == 1 else " · ".join(part for part in (title, run["name"]) if part)
        for title, run in zip(made, runs, strict=True)
    ]


def _words(fact: str, value: str) -> str:
    return f"{fact} {value}" if fact in ("question", "memory") else value
