"""Whether the figures of a served load are those of its repeats, and the repeats those of the tool's reports."""

from collections.abc import Iterator, Mapping
from math import isclose
from pathlib import Path
from statistics import fmean
from typing import Any

from kvbench.engines.serving.evaluate import REPORTS
from kvbench.engines.serving.record import over_repeats
from kvbench.engines.serving.reports import read_report
from kvbench.runner.verify.folder import Folder, named
from kvbench.runner.verify.verdict import Check, Findings, Note, Verdict, missing, wrong
from kvbench.utils.hashing import file_hash

COUNTS = ("answered", "failed", "unfinished")


def loads_fit(folder: Folder) -> Check:
    """Means and intervals against repeats; repeats, counts and the tool against the reports, which packs leave out."""
    findings = Findings()
    reports = {path.name: path for path in (folder.path / REPORTS).glob("*.json")}
    for record in folder.records:
        if record["kind"] == "serve":
            findings.collect(named(record), _over_repeats, record)
            findings.collect(named(record), _reported, record, reports)
    return findings.judged("loads", "figures, intervals and repeats of loads against the reports", Verdict.PROVEN)


def _over_repeats(record: Mapping[str, Any]) -> Iterator[Note]:
    repeats, figures, intervals = record["repeats"], record["figures"], record["intervals"]
    if {*figures} != {*repeats} or not {*intervals} <= {*repeats}:
        yield wrong("its figures, intervals and repeats have different names")
        return
    for name, values in repeats.items():
        if not isclose(figures[name], fmean(values), rel_tol=1e-9):
            yield wrong(f"{name} is {figures[name]:g}, and the mean of its repeats {fmean(values):g}")
        ends, again = intervals.get(name), over_repeats(values)
        if (ends is None) != (again is None) or not _all_close(ends or [], again or []):
            yield wrong(f"the interval of {name} is {ends}, and that of its repeats {again}")


def _reported(record: Mapping[str, Any], there: Mapping[str, Path]) -> Iterator[Note]:
    stated = record["reports"]
    if absent := {*stated} - {*there}:
        yield missing(f"{len(absent)} of its {len(stated)} reports are not in {REPORTS}/: repeats are not compared")
        return
    if changed := [name for name, hash in stated.items() if file_hash(there[name]) != hash]:
        yield wrong(f"{REPORTS}/{changed[0]} is not the file that was recorded")
        return
    loads = [read_report(there[name])[0] for name in stated]
    for name, values in record["repeats"].items():
        if not _all_close(values, [load.figures[name] for load in loads]):
            yield wrong(f"its repeats of {name} are not those of the reports")
    for name in COUNTS:
        if record[name] != (total := sum(getattr(load, name) for load in loads)):
            yield wrong(f"{record[name]} requests {name}, and {total} in the reports")
    if record["tool"] != loads[0].tool:
        yield wrong(f"measured by {record['tool']}, and the reports are of {loads[0].tool}")


def _all_close(these: list[float], those: list[float]) -> bool:
    return len(these) == len(those) and all(isclose(x, y, rel_tol=1e-9) for x, y in zip(these, those, strict=True))
