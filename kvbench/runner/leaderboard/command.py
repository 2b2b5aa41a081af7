"""`kvbench leaderboard FOLDER…`: one page and table of any number of packs and runs."""

import os
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import quote

from kvbench.errors import UserError, on_disk
from kvbench.utils.arguments import Parser
from kvbench.utils.console import print_line

TARGETS = (0.1, 0.2, 0.3, 0.5)  # of FullKV's bytes
EPILOG = """\
Writes leaderboard.md, leaderboard.html and leaderboard.csv. submission.yaml beside or above the records says who made
them. Every folder is checked as kvbench verify does, with what this machine has: one with something wrong, without all
records that its runs requested, damaged, or with records of another one is listed apart and not ranked.
"""


def main(arguments: Sequence[str]) -> None:
    parser = Parser(
        "leaderboard",
        "Rank methods at equal bytes over packs and runs of any number of people.",
        more=EPILOG,
    )
    parser.add_argument("folder", nargs="+", metavar="FOLDER", type=Path, help="a pack, a run, or a folder of such")
    parser.add_argument(
        "--out",
        metavar="FOLDER",
        type=Path,
        default=Path(),
        help="where to write, made if it is missing; default: here",
    )
    parser.add_argument(
        "--targets", metavar="LIST", default="", help="shares of FullKV's bytes; default: 0.1,0.2,0.3,0.5"
    )
    options = parser.parse(arguments)
    targets = targets_of(options.targets)
    if options.out.exists() and not options.out.is_dir():
        raise UserError(f"--out {options.out} is not a folder")
    for path in write(options.folder, options.out, targets):
        print_line(f"written  {path}")


def targets_of(text: str) -> tuple[float, ...]:
    """The shares in a text such as "0.1,0.2". Raises UserError for another one."""
    try:
        targets = tuple(sorted({float(part) for part in text.split(",")})) if text else TARGETS
    except ValueError:
        targets = ()
    if not targets or not all(0 < target <= 1 for target in targets):
        raise UserError(f"--targets {text} must be numbers above 0 and at most 1, such as 0.1,0.2")
    return targets


def write(folders: Sequence[Path], out: Path, targets: Sequence[float] = TARGETS) -> list[Path]:
    """Write the leaderboard of the packs and runs below `folders` to `out`; the files."""
    # behind the parser: these bring torch, which --help need not wait for
    import pandas as pd

    from kvbench.runner.leaderboard import page
    from kvbench.runner.leaderboard.boards import boards
    from kvbench.runner.leaderboard.submissions import read_submissions
    from kvbench.runner.leaderboard.tables import all_settings, at_equal_bytes, overview, set_apart, who_ran_what
    from kvbench.utils.csv_files import csv_text
    from kvbench.utils.files import write_atomically

    submissions, apart = read_submissions(folders)
    all_boards = boards(submissions)
    names = [submission.name for submission in submissions]
    links = [link(submission.folder, out) for submission in submissions]
    tables = [overview(all_boards, targets)]
    for board in all_boards:
        tables += [at_equal_bytes(board, targets, links, names), all_settings(board, links, names)]
    tables.append(who_ran_what(submissions, links))
    if apart:
        tables.append(set_apart(apart, [link(entry.folder, out) for entry in apart]))
    columns = "model benchmark facts label kind submission r_bytes measure score low high samples units whole".split()
    rows = []
    for board in all_boards:
        settings = board.settings.assign(submission=board.settings["submission"].map(dict(enumerate(names))))
        rows.append(settings.assign(model=board.model, benchmark=board.benchmark, facts=board.facts)[columns])
    frame = pd.concat(rows) if rows else pd.DataFrame(columns=columns)
    texts = {"md": page.markdown(tables), "html": page.html(tables), "csv": csv_text(frame.round(4))}
    written = []
    with on_disk(f"write to {out}"):
        for ending, text in texts.items():
            written.append(out / f"leaderboard.{ending}")
            write_atomically(written[-1], text)
    return written


def link(folder: Path, out: Path) -> str:
    """From the page to a folder's records."""
    from kvbench.records.record_files import files_in

    records = files_in(folder)[0].resolve()
    return quote(Path(os.path.relpath(records, out.resolve())).as_posix())
