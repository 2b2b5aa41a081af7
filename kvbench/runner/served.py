"""`kvbench served RUN…`: one table of quality beside serving, a picture of both, and a sentence of advice."""

import os
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from kvbench.configuration.conf import titled
from kvbench.errors import UserError
from kvbench.runner.latency_gate import check_alike, loads_of, split
from kvbench.utils.arguments import Parser, number
from kvbench.utils.console import out, print_line, warn

if TYPE_CHECKING:
    import pandas as pd

EPILOG = """\
RUN are folders of answers and of benchmark=serve; settings are joined by their names, which engine.label gives.
A report of GuideLLM or AIPerf (profile_export_aiperf.json) that was made without kvbench stands beside them:
  kvbench served runs --baseline f16 --report q8_0=profile_export_aiperf.json
"""


def main(arguments: Sequence[str]) -> int:
    options = _parser().parse(arguments)

    # behind the parser: this brings pandas, which --help need not wait for
    from kvbench.report.tables.alike_loads import other_model
    from kvbench.report.tables.serve_table import unsent
    from kvbench.report.tables.served_table import MARGIN, differing, first_baseline, served, served_notes, served_table
    from kvbench.report.tables.text_table import write_table
    from kvbench.runner import run_figures
    from kvbench.runner.compared_records import named, records_of

    runs = split(options.runs)
    if not runs.answers:
        raise UserError("no run of answers is among the runs, whose scores would stand beside serving")
    records, metric = records_of(runs.answers, options.metric)
    if metric is None:
        raise UserError("the answers have no score: a benchmark with expected answers gives them one")
    loads = [loads_of(runs.loads)] if runs.loads else []
    loads += [reported(text, records["setting"].unique()) for text in options.report]
    if not loads:
        raise UserError("no run of benchmark=serve is among the runs, and no --report is given")
    together = _concat(loads)
    check_alike(together)
    if reason := other_model(records, together):
        raise UserError(reason)
    baseline = named(options.baseline or first_baseline(records), list(records["setting"].unique()))
    if apart := differing(records, together):
        warn(f"{apart} answered and was loaded with other flags or another version: its rows are of two servers")
    frame = served(records, together, metric, baseline)
    notes = served_notes(frame, metric, baseline, MARGIN if options.margin is None else options.margin)
    notes += unsent(together)
    title = f"Quality beside serving: {records['benchmark'].iloc[0]}"
    out.print(served_table(frame, metric, title, notes, wide=False).rich())
    if options.out is not None:
        options.out.mkdir(parents=True, exist_ok=True)
        table = served_table(frame, metric, title, notes)
        written = write_table(frame, table, options.out, "served")
        written += run_figures.served(frame, metric, baseline, options.out / "served")
        for path in written:
            print_line(str(path))
    return 0


def reported(text: str, answered: Iterable[str] = ()) -> "pd.DataFrame":
    """The loads of SETTING=FILE as records of kind `serve`, of one repeat each. Both may have further equals signs: the
    first behind which a file's path stands divides them. SETTING may be the title of one that `answered`."""
    import pandas as pd

    from kvbench.engines.serving.reports import read_report

    parts = text.split("=")
    splits = [("=".join(parts[:place]), "=".join(parts[place:])) for place in range(1, len(parts))]
    splits = [(setting, path) for setting, path in splits if setting and path]
    if not splits:
        raise UserError(f"--report {text!r} is not SETTING=FILE")
    name, path = next((each for each in splits if os.path.exists(each[1])), splits[0])
    setting = next((label for label in answered if name.lower() in (label.lower(), titled(label).lower())), name)
    rows = [
        {
            "setting": setting,
            "profile": measured.load.profile if measured.load else "unknown",
            "rate": measured.load.rate if measured.load else None,
            "tool": measured.tool,
            "answered": measured.answered,
            "failed": measured.failed,
            "unfinished": measured.unfinished,
            "figures": dict(measured.figures),
            "intervals": {},
            "repeats": {name: [value] for name, value in measured.figures.items()},
            "capacity": {},
            "parameters": None,
        }
        for measured in read_report(Path(path))
    ]
    return pd.DataFrame(rows)


def _concat(frames: "list[pd.DataFrame]") -> "pd.DataFrame":
    import pandas as pd

    return pd.concat(frames, ignore_index=True)


def _parser() -> Parser:
    parser = Parser(
        "served",
        "One table of what a flag costs in answers (score, paired difference, equal answers, divergence) and what it "
        "gives when served (first token, time between tokens, throughput, capacity), with a sentence of advice.",
        more=EPILOG,
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of a run, or a folder of runs")
    parser.add_argument("--baseline", metavar="SETTING", help="the setting to compare with (default: the first)")
    parser.add_argument("--metric", metavar="NAME", help="the score (default: the benchmark's first)")
    margin = number(0, 1, "must be a number from 0 to 1")
    parser.add_argument("--margin", type=margin, metavar="M", help="the loss that the advice allows (default: 0.02)")
    parser.add_argument(
        "--report", action="append", default=[], metavar="SETTING=FILE", help="a report that another tool made"
    )
    parser.add_argument("--out", type=Path, metavar="FOLDER", help="write served.md, served.csv and served.png there")
    return parser
