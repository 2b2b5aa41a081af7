"""Latencies of servers beside a baseline's, for `kvbench compare --latency-margin`."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from kvbench.configuration.conf import titled
from kvbench.errors import UserError
from kvbench.runner.verdicts import BROKEN, CODES, UNDECIDED, WITHIN, worst
from kvbench.utils.console import print_line

if TYPE_CHECKING:
    import pandas as pd

# The latencies that decide, with their names: means over answers vary less from repeat to repeat than tails.
DECIDING = {"first_token_ms_mean": "first token", "inter_token_ms_mean": "time between tokens"}
EPILOG = """\
With --latency-margin L the runs of benchmark=serve among RUN have verdicts, too: the mean time to the first token and
between tokens under each of the baseline's loads, over the baseline's, with its 95 % interval over repeats:
  within     the whole interval is at or below 1 + L
  broken     the whole interval is above 1 + L: the exit code is 1
  undecided  the interval contains 1 + L, a load was measured once or not at all, or a larger share of its requests than
             of the baseline's has no answer: the exit code is 3 where nothing is broken (--allow-undecided: 0)
"""


class Verdict(NamedTuple):
    setting: str
    load: str
    verdict: str
    why: str  # the latency with its ratio and interval, or what is missing


class Unanswered(NamedTuple):
    """The requests of a load that failed or were open at its end, and all of them."""

    requests: int
    every: int

    @classmethod
    def of(cls, record: "pd.Series") -> "Unanswered":
        requests = record["failed"] + record["unfinished"]
        return cls(requests, record["answered"] + requests)

    @property
    def share(self) -> float:
        return self.requests / self.every if self.every else 1.0

    def __str__(self) -> str:
        return f"{self.requests} of {self.every}"


class Runs(NamedTuple):
    answers: list[Path]
    loads: list[Path]  # of benchmark=serve


def split(runs: Sequence[Path]) -> Runs:
    """The folders of runs, by their kind."""
    from kvbench.report.page.run_data import find_runs, kind_of
    from kvbench.runner.compared_records import answering

    folders = find_runs(runs)
    loads = [folder for folder in folders if kind_of(folder) == "serve"]
    return Runs(answering([folder for folder in folders if folder not in loads], runs), loads)


def loads_of(folders: Sequence[Path]) -> "pd.DataFrame":
    """The records of servers under load in these folders, each setting by its label in its folder; prints a warning for
    each fault of their files and each folder that lacks records."""
    import pandas as pd

    from kvbench.records.load import gather_for_command
    from kvbench.report.page.labels import with_labels

    records = gather_for_command(*folders)
    labelled = pd.concat([with_labels(group) for _, group in records.groupby("folder", sort=False)], ignore_index=True)
    return labelled.assign(setting=labelled["label"])


def check_alike(loads: "pd.DataFrame") -> None:
    """Raise UserError where loads cannot be compared with each other."""
    from kvbench.report.tables.alike_loads import why_apart

    if reason := why_apart(loads):
        raise UserError(f"{reason}: name only those that are to be compared")


def verdicts(loads: "pd.DataFrame", baseline: str, margin: float) -> list[Verdict]:
    """A verdict on each latency of each other setting under each of the baseline's loads; from records of kind `serve`.

    A latency that no record has was not measured, as the time between tokens of answers of one token.
    """
    from kvbench.report.tables.serve_table import load_text

    rows = {(row["setting"], load_text(row["profile"], row["rate"])): row for _, row in loads.iterrows()}
    names = [name for name in DECIDING if any(row["repeats"].get(name) for row in rows.values())] or [*DECIDING]
    return [
        _judged(setting, load, rows.get((setting, load)), beside, name, margin)
        for setting in dict.fromkeys(setting for setting, _ in rows if setting != baseline)
        for (of, load), beside in rows.items()
        if of == baseline
        for name in names
    ]


def _judged(setting: str, load: str, row: "pd.Series | None", beside: "pd.Series", name: str, margin: float) -> Verdict:
    """The verdict on one latency of a setting's record `row` beside the baseline's."""
    from kvbench.metrics.repeats import ratio

    if row is None:
        return Verdict(setting, load, UNDECIDED, "there is no record of this load")
    decided, latency = UNDECIDED, f"no {DECIDING[name]} to compare"
    if over := ratio(row["repeats"].get(name, []), beside["repeats"].get(name, [])):
        decided = verdict(over.low, over.high, margin)
        interval = "no interval" if over.low != over.low else f"{over.low:.2f} to {over.high:.2f}"
        latency = f"{DECIDING[name]} × {over.value:.2f} ({interval})"
    lost, least = Unanswered.of(row), Unanswered.of(beside)
    if lost.share <= least.share:
        return Verdict(setting, load, decided, latency)
    # latencies are of the answered requests alone, of which the slowest may be the first to fail
    decided = UNDECIDED if decided == WITHIN else decided
    return Verdict(setting, load, decided, f"{latency}; {lost} requests have no answer, {least} of {beside['setting']}")


def verdict(low: float, high: float, margin: float) -> str:
    """The verdict by the interval of a ratio; nan if there is no interval."""
    if high <= 1 + margin:
        return WITHIN
    return BROKEN if low > 1 + margin else UNDECIDED


def judged(judgements: Sequence[Verdict], margin: float, pass_undecided: bool) -> int:
    """Print the latencies that do not keep the margin or are undecided. Returns the exit code."""
    lines = []
    for latency in judgements:
        place = f"{latency.setting}, {latency.load}: {latency.why}"
        if latency.verdict == BROKEN:
            lines.append(f"the latency margin of {margin:g} is not kept by {place}")
        elif latency.verdict == UNDECIDED:
            lines.append(f"undecided, which is not passed: {place}")
    for line in dict.fromkeys(lines):  # a load without a record is the same for each latency
        print_line(line)
    codes = {CODES[latency.verdict] for latency in judgements if latency.verdict != UNDECIDED or not pass_undecided}
    return worst(*codes)


def of_loads(baseline: str, settings: Sequence[str]) -> str:
    """The setting under load with this label or title, as a whole or else without the run of its answers. Raises
    UserError for any other."""
    from kvbench.runner.compared_records import named

    for name in (baseline, baseline.partition(": ")[2]):
        for setting in settings:
            if name.lower() in (setting.lower(), titled(setting).lower()):
                return setting
    return named(baseline, settings)


def latencies(folders: Sequence[Path], baseline: str, margin: float, pass_undecided: bool) -> int:
    """The exit code of the runs of servers under load in `folders`. Raises UserError without such runs."""
    if not folders:
        raise UserError("--latency-margin needs a run of benchmark=serve among the runs")
    records = loads_of(folders)
    check_alike(records)
    label = of_loads(baseline, list(records["setting"].unique()))
    if not (judgements := verdicts(records, label, margin)):
        raise UserError(f"no setting was loaded but {label!r}: there is none to compare with it")
    kept = sum(latency.verdict == WITHIN for latency in judgements)
    print_line(f"latencies within {margin:g} of {label}'s: {kept} of {len(judgements)}")
    return judged(judgements, margin, pass_undecided)
