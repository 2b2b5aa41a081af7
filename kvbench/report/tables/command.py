"""`kvbench table +experiment=NAME`: a published table made again from records, beside its published values."""

from collections.abc import Sequence

from kvbench.errors import UserError
from kvbench.papers.command_line import parser

ABOUT = (
    "Make the table of an experiment from the records of its runs, beside the published values. No model is loaded and "
    "nothing is run: cells without records are left blank."
)


def main(arguments: Sequence[str]) -> None:
    known = parser("table", ABOUT)
    known.setting("out=FOLDER", "where to write NAME.md, NAME.tex and NAME.csv; default: tables in output_dir")
    known.setting(
        "published=true", "print the published values alone, without records, and what the runs would cost", published
    )
    options = known.parse(arguments)

    from kvbench.report.tables.make import make, show_published  # bring pandas and torch

    if options.published:
        if given := [f"{name}=" for name in ("runs", "out") if getattr(options, name)]:
            raise UserError(
                f"published=true reads no records and writes no file, only prints: leave {' and '.join(given)} out"
            )
        show_published(options.overrides)
    else:
        make(options.overrides, options.runs, options.out)


def published(text: str) -> bool:
    if text != "true":
        raise UserError(f"published={text}: published=true prints the published values alone, without records")
    return True
