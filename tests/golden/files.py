"""The recorded results, and what has changed since."""

import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.support.paths import DATA

FOLDER = DATA / "golden"
# Of the largest number of a preset. A code of few bits that rounding decides changes one by up to a hundredth.
TOLERANCE = 2e-2
HOW = "run python -m tests.golden"


def path(kind: str) -> Path:
    return FOLDER / f"{kind}.json"


def recorded(kind: str) -> dict[str, Any]:
    """The results by preset or file of metrics, or the seeds by preset; none where nothing is recorded."""
    return json.loads(path(kind).read_text(encoding="utf-8")) if path(kind).is_file() else {}


def write(kind: str, results: Mapping[str, object]) -> None:
    """One preset or file of metrics a line."""
    lines = (f"{json.dumps(name)}: {json.dumps(result, ensure_ascii=False)}" for name, result in results.items())
    FOLDER.mkdir(exist_ok=True)
    path(kind).write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


def findings(name: str, old: Mapping | None, new: Mapping) -> Iterator[str]:
    """What to do about one preset or file of metrics; nothing where its results and versions are those recorded."""
    if old is None:
        yield f"{name} has no recorded results: {HOW}"
    elif old["versions"] != new["versions"]:
        yield f"the versions of {name} are {new['versions']}, and its recorded results are of {old['versions']}: {HOW}"
    elif changed := differences(old, new):
        yield f"{forgotten(name, new, changed)}, then {HOW}"


def forgotten(name: str, new: Mapping, changed: list[str]) -> str:
    """A result that changed while its versions did not."""
    of = " or ".join(new["versions"])
    return f"the results of {name} changed ({', '.join(changed)}): raise the version of what computes them now, {of}"


def differences(old: Mapping, new: Mapping) -> list[str]:
    """The names of results that differ; numbers may differ by TOLERANCE of the largest."""
    exact = [key for key in new if key not in ("versions", "numbers") and old.get(key) != new[key]]
    before, now = old.get("numbers", []), new.get("numbers", [])
    most = TOLERANCE * max(map(abs, before), default=0)
    near = len(before) == len(now) and all(abs(x - y) <= most for x, y in zip(before, now, strict=True))
    return exact if near else [*exact, "numbers"]
