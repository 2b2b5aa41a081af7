"""Latencies of servers beside a baseline's, for `kvbench compare --latency-margin`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kvbench.errors import UserError
from kvbench.runner.verdicts import BROKEN, CODES, UNDECIDED, WITHIN, worst
from kvbench.utils.console import print_line, warn

if TYPE_CHECKING:
    import pandas as pd

# The latencies that decide, with their names: means over answers vary less from repeat to repeat than tails.
DECIDING = {"first_token_ms_mean": "first token", "inter_token_ms_mean": "time between tokens"}
EPILOG = """\
With --latency-margin L the runs of benchmark=serve among RUN have verdicts, too: the mean time to the first token and
between tokens of each load, over the baseline's under the same load, with its 95 % interval over repeats:
  within     the whole interval is at or below 1 + L
  broken     the whole interval is above 1 + L: the exit code is 1
  undecided  the interval contains 1 + L, or a load was measured once: the exit code is 3 where nothing is broken
             (--allow-undecided: 0)
"""


class Verdict(NamedTuple):
    setting: str
    load: str
    what: str  # a name of DECIDING
    ratio: float
    low: float  # nan without an interval
    high: float
    verdict: str


class Runs(NamedTuple):
    answers: list[Path]
    loads: list[Path]  # of benchmark=serve


def split(runs: Sequence[Path]) -> Runs:
    """The folders of runs, by their kind."""
    from kvbench.report.page.run_data import find_runs, kind_of

    folders = find_runs(runs)
    loads = [folder for folder in folders if kind_of(folder) == "serve"]
    return Runs([folder for folder in folders if folder not in loads], loads)


def loads_of(folders: Sequence[Path]) -> "pd.DataFrame":
    """The records of servers under load in these folders; prints a warning for each fault of their files."""
    from kvbench.records import gather
    from kvbench.records.load import refuse

    records, findings = gather(*folders)
    refuse(findings)
    for finding in findings:
        warn(finding.message)
    return records


def verdicts(loads: "pd.DataFrame", baseline: str, margin: float) -> list[Verdict]:
    """A verdict for each setting, load and latency that the baseline has, too; from records of kind `serve`."""
    from kvbench.metrics.repeats import ratio
    from kvbench.report.tables.serve_table import load_text

    rows = {(row["setting"], load_text(row["profile"], row["rate"])): row["repeats"] for _, row in loads.iterrows()}
    judgements = []
    for (setting, load), repeats in rows.items():
        beside = rows.get((baseline, load))
        if setting == baseline or beside is None:
            continue
        for name, what in DECIDING.items():
            if over := ratio(repeats.get(name, []), beside.get(name, [])):
                judgements.append(Verdict(setting, load, what, *over, verdict(over.low, over.high, margin)))
    return judgements


def verdict(low: float, high: float, margin: float) -> str:
    """The verdict by the interval of a ratio; nan if there is no interval."""
    if high <= 1 + margin:
        return WITHIN
    return BROKEN if low > 1 + margin else UNDECIDED


def judged(judgements: Sequence[Verdict], margin: float, pass_undecided: bool) -> int:
    """Print the latencies that do not keep the margin or are undecided. Returns the exit code."""
    for latency in judgements:
        interval = "no interval" if latency.low != latency.low else f"{latency.low:.2f} to {latency.high:.2f}"
        place = f"{latency.setting}, {latency.load}: {latency.what} × {latency.ratio:.2f} ({interval})"
        if latency.verdict == BROKEN:
            print_line(f"the latency margin of {margin:g} is not kept by {place}")
        elif latency.verdict == UNDECIDED:
            print_line(f"undecided, which is not passed: {place}")
    codes = {CODES[latency.verdict] for latency in judgements if latency.verdict != UNDECIDED or not pass_undecided}
    return worst(*codes)


def latencies(folders: Sequence[Path], baseline: str, margin: float, pass_undecided: bool) -> int:
    """The exit code of the runs of servers under load in `folders`. Raises UserError without such runs."""
    from kvbench.runner.compared_records import named

    if not folders:
        raise UserError("--latency-margin needs a run of benchmark=serve among the runs")
    records = loads_of(folders)
    label = named(baseline.rpartition(": ")[2], list(records["setting"].unique()))  # without the run of its answers
    if not (judgements := verdicts(records, label, margin)):
        raise UserError(f"no other setting has a load of {label!r}")
    kept = sum(latency.verdict == WITHIN for latency in judgements)
    print_line(f"latencies within {margin:g} of {label}'s: {kept} of {len(judgements)}")
    return judged(judgements, margin, pass_undecided)
