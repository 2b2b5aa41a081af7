"""`kvbench compare RUN…`: settings of one or several runs beside a baseline, on the same samples."""

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kvbench.errors import UserError
from kvbench.runner import latency_gate
from kvbench.utils.arguments import Parser
from kvbench.utils.console import out, print_line, warn

if TYPE_CHECKING:
    import pandas as pd

EPILOG = """\
With --margin M each setting has a verdict by its difference's 95 % interval:
  within     the whole interval is at or above -M
  broken     the whole interval is below -M: the exit code is 1
  undecided  the interval contains -M, or there is none: not passed, more samples are needed (--strict: the exit code
             is 3 where nothing is broken)

The last column is how many units (texts or problems drawn independently) decide about M: so many show a difference of M
with a probability of 0.8 at the 5 % level, and no fewer than those whose equal scores show that M is not lost. Without
--margin it is for a difference of the size that was found.

Settings of several runs are named RUN: SETTING, and are compared over the samples that both have.
"""
BROKEN, UNDECIDED = 1, 3  # exit codes


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse(arguments)
    margin = None if options.margin is None else _margin(options.margin)
    latency = latency_gate.margin_of(options.latency_margin)
    if margin is None and latency is None and options.strict:
        raise UserError("--strict needs --margin or --latency-margin: without one there is no verdict")
    runs = latency_gate.Runs(options.runs, []) if latency is None else latency_gate.split(options.runs)
    if latency is not None and not runs.answers:
        return latency_gate.latencies(runs.loads, options.baseline or "full", latency, options.strict)

    # behind the parser: this brings pandas, which --help need not wait for
    from kvbench.metrics.aggregate import bounds
    from kvbench.metrics.paired_comparison import units_for_margin, units_needed, verdict
    from kvbench.report.tables.differences import against, difference_table, floor_note, pairs
    from kvbench.report.tables.text_table import MISSING
    from kvbench.runner.compared_records import named, records_of

    records, metric = records_of(runs.answers, options.metric)
    settings = list(records["setting"].unique())
    baseline = named(options.baseline or "full", settings)
    compared = against(pairs(records, metric), baseline)
    if compared.empty:
        raise UserError(f"no other setting has a sample of {baseline!r}")
    measured = list(zip(compared["error"], compared["units"], strict=True))
    if margin is None:
        sizes = zip(measured, compared["difference"], strict=True)
        compared["needed"] = [units_needed(error, units, size) for (error, units), size in sizes]
        columns = {}
    else:
        of = bounds(metric)
        compared["needed"] = [units_for_margin(error, units, margin, of) for error, units in measured]
        ends = zip(compared["low"], compared["high"], strict=True)
        compared["verdict"] = [verdict(low, high, margin) for low, high in ends]
        columns = {"verdict": compared["verdict"].tolist()}
    what = "units needed" if margin is None else f"units for {margin:g}"
    needed = [MISSING if one != one else f"{one:,.0f}" for one in compared["needed"].astype(float)]
    out.print(difference_table(compared, metric, {what: needed, **columns}, margin or 0.0).rich())
    if note := floor_note(compared, metric, margin or 0.0):
        warn(note)
    codes = [] if margin is None else [_judged(compared, margin, options.strict)]
    if latency is not None:
        codes.append(latency_gate.latencies(runs.loads, baseline, latency, options.strict))
    return next((code for code in (BROKEN, UNDECIDED) if code in codes), 0)


def _judged(compared: "pd.DataFrame", margin: float, strict: bool) -> int:
    """Say which settings do not keep the margin and which are undecided, and for want of what; the exit code."""
    broken, undecided = (compared[compared["verdict"] == one] for one in ("broken", "undecided"))
    if len(broken):
        print_line(f"the margin of {margin:g} is not kept by {', '.join(broken['setting'])}")
    for _, row in undecided.iterrows():
        print_line(f"undecided, which is not passed: {row['setting']}, {_missing(row, margin)}")
    return BROKEN if len(broken) else UNDECIDED if strict and len(undecided) else 0


def _missing(row: "pd.Series", margin: float) -> str:
    """What an undecided setting lacks."""
    units = f"{row['units']:,} unit" + "s" * (row["units"] != 1)
    if row["low"] != row["low"]:
        return f"whose difference over {units} has no interval"
    if row["needed"] > row["units"]:
        return f"over {units}: a margin of {margin:g} takes about {row['needed']:,.0f}"
    return f"whose difference of {row['difference']:+.3f} is too near to -{margin:g} to be told from it by {units}"


def _margin(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 1:
        raise UserError(f"--margin {text} must be a number from 0 to 1")
    return value


def _parser() -> Parser:
    parser = Parser(
        "compare",
        "Compare settings with a baseline on the same samples: mean difference with its 95 % interval, "
        "p-value with Holm's correction, wins, ties and losses.",
        more=EPILOG + "\n" + latency_gate.EPILOG,
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of a run, or a folder of runs")
    parser.add_argument("--baseline", metavar="SETTING", help="the setting to compare with (default: FullKV)")
    parser.add_argument("--metric", metavar="NAME", help="the score to compare (default: the benchmark's first)")
    parser.add_argument(
        "--margin", metavar="M", help="exit with code 1 where a setting is worse by more than M, 0 to 1"
    )
    parser.add_argument(
        "--latency-margin", metavar="L", help="exit with code 1 where a server's latencies grow by more than this share"
    )
    parser.add_argument("--strict", action="store_true", help="exit with code 3 where a setting is undecided")
    return parser
