"""`kvbench verify FOLDER…`: the claims of a folder of records, checked one by one."""

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from kvbench.errors import UserError, on_disk, unknown
from kvbench.records.load import files
from kvbench.runner.verify.rerun_draw import Draw
from kvbench.utils.arguments import Parser
from kvbench.utils.console import print_line, status
from kvbench.utils.files import write_atomically
from kvbench.utils.places import PLACES

EPILOG = """\
verdicts: proven (recomputed here), plausible (the folder is consistent, and its values are possible), unproven
(something that the check needs is not here), wrong (a contradiction, or something impossible).

Without --rerun no answer is made again: "recomputed" means from the folder's own tokens, texts and bytes.
--rerun K loads the model and makes K samples again under all settings of the folder: about K samples' share of the time
that the run took, and at most four times that, where answers differ. If 60 % of the samples have forged answers, one of
them is among 3 drawn ones with a probability of 94 % (1 - 0.4**3, or a little more). The folder's records and a nonce,
which is printed, decide which samples are drawn; --nonce TEXT draws the same ones again. Who hands in must not know it
before.

Nothing is downloaded, and no code that a folder names is imported. model.path=FOLDER and benchmark.data_dir=FOLDER (or
another place of the benchmark's data) give this machine's paths of the files that the run read.

exit code: 0, 1 if something is wrong, or 2 for a mistake in the command
"""


def main(arguments: Sequence[str]) -> int:
    """The exit code."""
    parser = Parser(
        "verify",
        "Check a folder of records that somebody else may have made: a run's, or a pack of one.",
        more=EPILOG,
    )
    parser.add_argument("folder", nargs="+", metavar="FOLDER", help="a run, a pack, or a folder of such; or KEY=PATH")
    parser.add_argument("--out", metavar="FILE", type=Path, help="write the page: a .md or .html file")
    parser.add_argument("--rerun", metavar="K", type=int, help="make K drawn samples again here, and compare")
    parser.add_argument("--nonce", metavar="TEXT", help="with --rerun: what draws the samples; default: a random one")
    options = parser.parse(arguments)
    if options.out is not None and options.out.suffix not in (".md", ".html"):
        raise UserError(f"--out {options.out} must end in .md or .html")
    folders = [folder for folder in options.folder if "=" not in folder or Path(folder).exists()]
    places = dict(place(word) for word in options.folder if word not in folders)
    draw = draw_of(options.rerun, options.nonce)
    paths = list(dict.fromkeys(path.parent for path in files(folders, linked=False)))
    # behind the parser: this brings torch, which --help need not wait for
    from kvbench.runner.verify import page
    from kvbench.runner.verify.checks import verify
    from kvbench.runner.verify.verdict import Verdict

    pages = []
    for path in paths:
        with status(f"checking {path}"):
            pages.append((path, verify(path, places, draw)))
        print_line(page.text(*pages[-1]))
    if options.out is not None:
        with on_disk(f"write --out {options.out}"):
            write_atomically(options.out, (page.html if options.out.suffix == ".html" else page.markdown)(pages))
        print_line(f"written    {options.out}")
    return int(any(check.verdict is Verdict.WRONG for _, checks in pages for check in checks))


def draw_of(count: int | None, nonce: str | None) -> Draw | None:
    """The samples to make again; None without --rerun. Raises UserError for a wrong number or nonce."""
    if count is None:
        if nonce is not None:
            raise UserError(f"--nonce {nonce} draws the samples of --rerun K, which is not given")
        return None
    return Draw(count) if nonce is None else Draw(count, nonce)


class Place(NamedTuple):
    key: str
    path: str


def place(word: str) -> Place:
    """KEY=PATH of the command line. Raises UserError for any other key."""
    key, _, value = word.partition("=")
    known = ["model.path", *(f"benchmark.{name}" for name in sorted(PLACES))]
    if key not in known and not (key.startswith("benchmark.") and key.rpartition(".")[2] in PLACES):
        raise unknown("place", key, known)
    return Place(key, value)
