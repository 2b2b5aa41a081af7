"""NoLiMa's needle sets: the tests that a set describes, as its evaluation/run_tests.py makes them."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from kvbench.errors import UserError
from kvbench.utils.row_files import read_file

CHARACTER = "{CHAR}"  # the place of a name in needle and question
DIRECT = "direct"  # in the names of questions that share words with the needle; the official results leave them out
SEED = 42
FIELDS = {"id": str, "needle": str, "questions": dict, "tests": dict}


@dataclass(frozen=True)
class Case:
    """A needle and a question about it; both may have the place {CHAR} of a name."""

    name: str
    hop: str  # the kind of question: onehop, twohop, …
    needle: str
    question: str
    golds: tuple[str, ...]  # the right answers; empty: the name
    characters: tuple[str, ...]  # from which the name is drawn
    template: str | None  # of a set with its own prompts
    seed: int


def read(path: Path) -> list[Case]:
    """The tests of a needle set, without direct questions where it has others.

    Raises UserError, which names the file and the entry.
    """
    tests: list[Case] = []
    for number, entry in enumerate(read_file(path, FIELDS, filled=("needle", "questions", "tests")), 1):
        try:
            tests += _tests(entry)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise UserError(f"{path}, entry {number}: {type(error).__name__} {error}") from error
    return [test for test in tests if DIRECT not in test.name] or tests


def _tests(entry: dict[str, Any]) -> Iterator[Case]:
    if "distractors" in entry:
        raise ValueError("sets with distractors are not supported")
    for hop, question in entry["questions"].items():
        for name, values in entry["tests"].items():
            needle, filled = entry["needle"], question
            for number, value in enumerate(values["input_args"], 1):
                place = f"{{{number}}}"
                needle = needle.replace(place, value)
                if place in question:  # replaced in the original question: of several places, the last one is filled
                    filled = question.replace(place, value)
            golds = values.get("gold_answers") or []
            characters = entry.get("character_set") or []
            if not isinstance(golds, list) or not isinstance(characters, list):
                raise ValueError("gold_answers and character_set are lists")
            if not (characters if CHARACTER in needle else golds):
                raise ValueError(f"test {name!r} has no {'character_set' if CHARACTER in needle else 'gold_answers'}")
            yield Case(
                name=f"{entry['id']}_{name}_{hop}",
                hop=hop,
                needle=needle,
                question=filled,
                golds=() if CHARACTER in needle else tuple(golds),
                characters=tuple(characters),
                template=entry.get("task_template"),
                seed=SEED + int(entry["id"][:4]),
            )
