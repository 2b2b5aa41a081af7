"""`kvbench compare RUN…`: settings of one or several runs beside a baseline, on the same samples."""

from collections.abc import Sequence
from math import nextafter
from pathlib import Path

from kvbench.runner import latency_gate
from kvbench.runner.verdicts import worst
from kvbench.utils.arguments import Parser, number
from kvbench.utils.console import out, warn

EPILOG = """\
--margin, --min-equal, --min-top1 and --max-kl each set a limit. A setting's verdict is by 95 % intervals:
  within           every interval is on the right side of its limit
  within by score  as within, but most answers differ from the baseline's, and --min-equal is not set
  broken           an interval is on the wrong side of its limit: the exit code is 1
  undecided        an interval contains its limit or is missing, or the baseline's score is so low that no setting can
                   lose more than the margin: not passed. The exit code is 3 if no setting is broken
                   (--allow-undecided: 0)

"units for M" is the number of units (texts or problems drawn independently) that decide about --margin M: enough to
show a difference of M with a probability of 0.8 at the 5 % level, and to show by equal scores that M is not lost.
Without --margin, "units needed" is for a difference of the measured size.

Settings of several runs are named RUN: SETTING, and are compared over the samples of both.
"""


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse(arguments)
    latency = options.latency_margin
    runs = latency_gate.Runs(options.runs, []) if latency is None else latency_gate.split(options.runs)
    if latency is not None and not runs.answers:
        return latency_gate.latencies(runs.loads, options.baseline or "full", latency, options.allow_undecided)

    # behind the parser: this brings pandas, which --help need not wait for
    from kvbench.report.tables.agreement import agreements
    from kvbench.report.tables.differences import floor_note
    from kvbench.runner.compare_table import compared_with, table
    from kvbench.runner.compared_records import named, records_of
    from kvbench.runner.conditions import asked
    from kvbench.runner.gate import Gate

    records, metric = records_of(runs.answers, options.metric)
    baseline = named(options.baseline or "full", list(records["setting"].unique()))
    agreed = agreements(records, baseline)
    compared = compared_with(baseline, records, metric, agreed, options.margin)
    settings = [name for name in records["setting"].unique() if name != baseline]
    gate = Gate(settings, asked(options, compared, metric, agreed), agreed)
    if apart := [name for name in settings if name not in {*compared["setting"]}]:
        warn(f"not compared, as no sample has {metric or 'an answer'} under both: {', '.join(apart)}")
    out.print(table(compared, metric, baseline, agreed, gate.words, options.margin).rich())
    if not gate.conditions and metric and (note := floor_note(compared, metric)):
        warn(note)
    gate.tell()
    code = gate.exit_code(options.allow_undecided)
    if latency is None:
        return code
    return worst(code, latency_gate.latencies(runs.loads, baseline, latency, options.allow_undecided))


def _parser() -> Parser:
    parser = Parser(
        "compare",
        "Compare settings with a baseline on the same samples: mean difference with its 95 % interval, "
        "p-value with Holm's correction, wins, ties and losses; equal answers, and distances where they were measured.",
        more=EPILOG + "\n" + latency_gate.EPILOG,
    )
    share = number(0, nextafter(1, 0), "must be a number from 0 to below 1: no number of samples shows that all agree")
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of a run, or a folder of runs")
    parser.add_argument("--baseline", metavar="SETTING", help="the setting to compare with (default: FullKV)")
    parser.add_argument("--metric", metavar="NAME", help="the score to compare (default: the benchmark's first)")
    parser.add_argument(
        "--margin",
        type=number(0, 1, "must be a number from 0 to 1"),
        metavar="M",
        help="the most that a score may be below the baseline's, 0 to 1",
    )
    parser.add_argument("--min-equal", type=share, metavar="SHARE", help="of answers that are the baseline's")
    parser.add_argument("--min-top1", type=share, metavar="SHARE", help="of equal next tokens, where distances are")
    parser.add_argument(
        "--max-kl",
        type=number(0, 1e6, "must be a number of nats, at least 0"),
        metavar="NATS",
        help="divergence per token, where distances are; a lower bound of it for other engines",
    )
    parser.add_argument(
        "--allow-undecided", action="store_true", help="exit with code 0 where a setting is undecided, and none broken"
    )
    parser.add_argument(
        "--latency-margin",
        type=number(0, 100, "must be a number from 0 to 100: 0.1 allows a tenth more"),
        metavar="L",
        help="the largest share by which a server's latencies may grow",
    )
    return parser
