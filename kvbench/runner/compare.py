"""`kvbench compare RUN…`: settings of one or several runs beside a baseline, on the same samples."""

import argparse
from collections.abc import Sequence
from pathlib import Path

from kvbench.errors import UserError
from kvbench.utils.arguments import Parser
from kvbench.utils.console import out, print_line

EPILOG = """\
With --margin M each setting has a verdict by its difference's 95 % interval:
  within     the whole interval is at or above -M
  broken     the whole interval is below -M: the exit code is 1
  undecided  the interval contains -M, or there is none: more samples are needed (--strict: the exit code is 1)

The last column is how many units (texts or problems drawn independently) show a difference of M, or without
--margin one of the size that was found, with a probability of 0.8 at the 5 % level.

Settings of several runs are named RUN: SETTING, and are compared over the samples that both have.
"""


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse_args(arguments)
    margin = None if options.margin is None else _margin(options.margin)
    if margin is None and options.strict:
        raise UserError("--strict needs --margin: without one there is no verdict")

    # behind the parser: this brings pandas, which --help need not wait for
    from kvbench.metrics.paired_comparison import units_needed, verdict
    from kvbench.runner.compared_records import named, records_of
    from kvbench.tables.differences import against, difference_table, pairs
    from kvbench.tables.text_table import MISSING

    records, metric = records_of(options.runs, options.metric)
    settings = list(records["setting"].unique())
    baseline = named(options.baseline or "full", settings)
    compared = against(pairs(records, metric), baseline)
    if compared.empty:
        raise UserError(f"no other setting has a sample of {baseline!r}")
    verdicts = (
        []
        if margin is None
        else [verdict(low, high, margin) for low, high in zip(compared["low"], compared["high"], strict=True)]
    )
    sizes = compared["difference"] if margin is None else [margin] * len(compared)
    needed = [
        units_needed(error, units, size)
        for error, units, size in zip(compared["error"], compared["units"], sizes, strict=True)
    ]
    what = "units needed" if margin is None else f"units for {margin:g}"
    columns = {what: [MISSING if one is None else f"{one:,}" for one in needed]}
    columns |= {"verdict": verdicts} if verdicts else {}
    out.print(difference_table(compared, metric, columns).rich())
    wrong = {"broken", "undecided"} if options.strict else {"broken"}
    failed = [name for name, one in zip(compared["setting"], verdicts, strict=False) if one in wrong]
    if failed:
        print_line(f"the margin of {margin:g} is not kept by {', '.join(failed)}")
    return int(bool(failed))


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
        prog="kvbench compare",
        description="Compare settings with a baseline on the same samples: mean difference with its 95 % interval, "
        "p-value with Holm's correction, wins, ties and losses.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of a run, or a folder of runs")
    parser.add_argument("--baseline", metavar="SETTING", help="the setting to compare with (default: FullKV)")
    parser.add_argument("--metric", metavar="NAME", help="the score to compare (default: the benchmark's first)")
    parser.add_argument(
        "--margin", metavar="M", help="exit with code 1 where a setting is worse by more than M, 0 to 1"
    )
    parser.add_argument("--strict", action="store_true", help="undecided settings fail too")
    return parser
