"""`kvbench verify FOLDER…`: what a folder of records claims, check by check, and what of it is proven."""

import argparse
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kvbench.errors import UserError, on_disk, unknown
from kvbench.records.load import files
from kvbench.utils.arguments import Parser
from kvbench.utils.console import print_line
from kvbench.utils.files import write_atomically
from kvbench.utils.places import PLACES

EPILOG = """\
verdicts: proven (recomputed here), plausible (the folder agrees with itself and with what is possible), unproven
(something that the check needs is not here), wrong (a contradiction, or something impossible).

Nothing is downloaded, and no code that a folder names is imported. model.path=FOLDER and benchmark.data_dir=FOLDER (or
another place of the benchmark's data) say where this machine has what the run read.

exit code: 0, 1 if something is wrong, or 2 for a mistake in the command
"""


def main(arguments: Sequence[str]) -> int:
    """The exit code."""
    parser = Parser(
        prog="kvbench verify",
        description="Check a folder of records that somebody else may have made: a run's, or a pack of one.",
        epilog=EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("folder", nargs="+", metavar="FOLDER", help="a run, a pack, or a folder of such; or KEY=PATH")
    parser.add_argument("--out", metavar="FILE", type=Path, help="write the page: a .md or .html file")
    options = parser.parse_args(arguments)
    if options.out is not None and options.out.suffix not in (".md", ".html"):
        raise UserError(f"--out {options.out} must end in .md or .html")
    folders = [folder for folder in options.folder if "=" not in folder or Path(folder).exists()]
    places = dict(place(word) for word in options.folder if word not in folders)
    paths = list(dict.fromkeys(path.parent for path in files(folders)))
    # behind the parser: this brings torch, which --help need not wait for
    from kvbench.verify import page
    from kvbench.verify.checks import verify
    from kvbench.verify.verdict import Verdict

    pages = []
    for path in paths:
        pages.append((path, verify(path, places)))
        print_line(page.text(*pages[-1]))
    if options.out is not None:
        with on_disk(f"write --out {options.out}"):
            write_atomically(options.out, (page.html if options.out.suffix == ".html" else page.markdown)(pages))
        print_line(f"written    {options.out}")
    return int(any(check.verdict is Verdict.WRONG for _, checks in pages for check in checks))


class Place(NamedTuple):
    key: str
    path: str


def place(word: str) -> Place:
    """KEY=PATH of the command line. Raises UserError for a key that is no place."""
    key, _, value = word.partition("=")
    known = ["model.path", *(f"benchmark.{name}" for name in sorted(PLACES))]
    if key not in known:
        raise unknown("place", key, known)
    return Place(key, value)
