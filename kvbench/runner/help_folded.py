"""Names that begin alike in one line: the experiments of a paper in `kvbench --help`."""

import re
from collections.abc import Iterable
from itertools import groupby
from operator import itemgetter


def folded(names: Iterable[str]) -> dict[str, str]:
    """What names have in front of their last "_", and how they go on: "paper_…" → "fig2, table1 to table4".

    A name with a unique begin is unchanged.
    """
    endings: dict[str, list[str]] = {}
    for name in names:
        start, _, end = name.rpartition("_")
        endings.setdefault(start, []).append(end)
    rows = {}
    for start, ends in endings.items():
        if start and len(ends) > 1:
            rows[f"{start}_…"] = ", ".join(_in_runs(ends))
        else:
            rows |= {f"{start}_{end}".removeprefix("_"): "" for end in ends}
    return rows


def _in_runs(names: list[str]) -> list[str]:
    """Three names or more whose numbers follow each other as the first and the last of them: "table1 to table11"."""
    runs: list[str] = []
    for _, run in groupby(enumerate(names), key=_series):
        alike = [*map(itemgetter(1), run)]
        runs += [f"{alike[0]} to {alike[-1]}"] if len(alike) > 2 else alike
    return runs


def _series(placed: tuple[int, str]) -> tuple[str, int]:
    """What is the same for names whose numbers grow with their places; different for those without a number."""
    place, name = placed
    parts = re.fullmatch(r"(\D+)(\d+)", name)
    return (parts[1], int(parts[2]) - place) if parts else (name, place)
