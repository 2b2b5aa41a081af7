"""`python -m kvbench.tables +experiment=NAME`: a published table made again from records, beside its figures."""

import sys
from collections.abc import Sequence
from pathlib import Path

from kvbench.cli import mistakes_in_one_line, options

HELP = """\
kvbench.tables: the table of an experiment from the records of its runs, beside the published figures

  python -m kvbench.tables +experiment=NAME [OVERRIDES] [runs=FOLDER ...] [out=FOLDER]

  OVERRIDES    those of the runs: model=smollm2-135m benchmark.tasks=[qasper] ...
  runs=FOLDER  where to look for records: folders of runs or of one run; output_dir when not given
  out=FOLDER   where to write NAME.md, NAME.tex and NAME.csv; tables in output_dir when not given
  --config-dir=FOLDER  more configuration, as for kvbench itself

No model is loaded and nothing is run: what has no record yet is left blank.

+experiment="""


def main(arguments: Sequence[str]) -> None:
    if {"--help", "-h"} & set(arguments):
        print(HELP)
        width = max(map(len, options("experiment")))
        for name, about in options("experiment").items():
            print(f"  {name:<{width}}  {about}")
        return
    with mistakes_in_one_line():
        from kvbench.tables.make import make  # pandas and torch load only once help was not asked for

        make(*split(arguments))


def split(arguments: Sequence[str]) -> tuple[list[str], list[str], str | None]:
    """The overrides of a configuration, the folders after runs= and the one after out=."""
    overrides, runs, out = [], [], None
    waiting = False
    for argument in arguments:
        key, _, value = argument.partition("=")
        if waiting:
            overrides.append(f"hydra.searchpath=[file://{Path(argument).absolute()}]")
            waiting = False
        elif key == "runs":
            runs += [part.strip() for part in value.strip("[]").split(",") if part.strip()]
        elif key == "out":
            out = value
        elif key in ("--config-dir", "-cd"):
            waiting = not value
            overrides += [f"hydra.searchpath=[file://{Path(value).absolute()}]"] * bool(value)
        elif argument not in ("-m", "--multirun"):
            overrides.append(argument)
    return overrides, runs, out


if __name__ == "__main__":
    main(sys.argv[1:])
