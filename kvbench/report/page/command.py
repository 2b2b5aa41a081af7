"""`kvbench report RUN…`: one HTML page of runs that needs no other file."""

import re
from collections.abc import Sequence
from html import unescape
from itertools import chain, count
from pathlib import Path

from kvbench.errors import UserError, on_disk
from kvbench.utils.arguments import Parser
from kvbench.utils.console import print_line, status, warn
from kvbench.utils.files import replacing
from kvbench.utils.text import count as number_of

NAME = "report.html"
HEAD = 2**16  # characters of a page, among the first of which its title is


def main(arguments: Sequence[str]) -> None:
    """Write the page and print its path."""
    options = _parser().parse(arguments)
    path = write(options.runs, options.out)
    size = path.stat().st_size / 1e6
    print_line(f"page     {path} ({size:.1f} MB)")


def write(runs: Sequence[Path], out: Path | None) -> Path:
    """The page of the runs in or right below `runs`; `out` is NAME in the run's folder, or here for several."""
    # behind the parser: this brings torch, which --help need not wait for
    from kvbench.records.record_files import check_name
    from kvbench.report.page.page import page
    from kvbench.report.page.run_data import find_runs, without_page

    if out is not None:
        check_name(out, runs)
    reasons = {folder: without_page(folder) for folder in find_runs(runs)}
    folders = [folder for folder, reason in reasons.items() if not reason]
    without = [f"{folder} {reason}" for folder, reason in reasons.items() if reason]
    if not folders:
        raise UserError("; ".join(without))
    for line in without:
        warn(line)
    path = out or (folders[0] / NAME if len(folders) == 1 else Path(NAME))
    if path.is_dir():
        raise UserError(f"--out {path} is a folder: name a file, for example {path / NAME}")
    if not path.parent.is_dir():
        raise UserError(f"--out {path}: there is no folder {str(path.parent)!r}")
    with status(f"reading {number_of(len(folders), 'run')}"):
        text = page(folders)
    if out is None:
        path = beside_others(path, text)
    elif is_another(path, text):
        warn(f"{path} is replaced: it was {titled(path) or 'not a page of runs'}")
    with on_disk(f"write {path}"), replacing(path) as work:
        work.write_text(text, encoding="utf-8")
    return path


def beside_others(path: Path, text: str) -> Path:
    """`path`, or report-2.html and so on where a page of other runs is there, which stays."""
    names = chain([path], (path.with_stem(f"{path.stem}-{number}") for number in count(2)))
    return next(name for name in names if not is_another(name, text))


def is_another(path: Path, text: str) -> bool:
    """Whether there is a file that is not an earlier page of the same runs."""
    return path.exists() and titled(path) != title_in(text)


def titled(path: Path) -> str:
    """The title of a page, which names its runs; "" of any other file."""
    with path.open(encoding="utf-8", errors="replace") as file:
        return title_in(file.read(HEAD))


def title_in(text: str) -> str:
    title = re.search("<title>(kvbench: .*?)</title>", text[:HEAD], re.DOTALL)
    return unescape(title[1]) if title else ""


def _parser() -> Parser:
    parser = Parser(
        "report",
        "Write one HTML page of runs: tables, score against bytes, needle heatmaps, every sample with "
        "every setting's output and what each layer kept. It needs no server, no network and no other file.",
    )
    parser.add_argument("runs", nargs="+", type=Path, metavar="RUN", help="folder of a run, or a folder of runs")
    parser.add_argument(
        "--out",
        type=Path,
        metavar="FILE",
        help=f"default: {NAME} in the run's folder, or here for several runs (report-2.html beside one of other runs)",
    )
    return parser
