"""`kvbench status`: how far every run in a folder is, from its manifests, records and locks."""

import shlex
from collections.abc import Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import Any

from rich.text import Text

from kvbench.errors import UserError, no_folder
from kvbench.records.manifest import read_note
from kvbench.records.progress import Share, shares_of, state
from kvbench.records.recorded_configuration import recorded
from kvbench.records.store import PACK, record_files, shard_label
from kvbench.runner.starting_note import STARTING, lock_of
from kvbench.utils.arguments import Parser
from kvbench.utils.console import out
from kvbench.utils.files import below
from kvbench.utils.locks import held

STYLE = {"finished": "green", "running": "cyan", "not begun": "yellow", "killed": "red", "failed": "red"}
COLUMNS = ("folder", "settings", "shard", "records", "state", "when (UTC)", "job", "error")


@dataclass(frozen=True)
class Row:
    """One shard of a request for a run's folder, as a line of the table."""

    folder: str
    settings: str
    shard: str
    records: str  # made/wanted
    state: str  # finished, running, not begun, killed, running or killed, failed, stopped by a signal, or damaged
    when: str = ""  # it ended, or began where it has not ended
    job: str = ""
    error: str = ""


def rows(folder: Path) -> list[Row]:
    """Everything under a folder of runs, or under one run's folder. UserError where there is no run."""
    if not folder.is_dir():
        raise no_folder(folder)
    runs = [path.parent for path in below(folder, "manifests")]
    every = [row for path in runs if not is_pack(path) for row in run_rows(path)]
    every += [note_row(path) for path in below(folder, f"{STARTING}/*.json")]
    if not every and any(map(is_pack, runs)):
        raise UserError(
            f"{folder} has only packs, and their runs have ended: kvbench records {shlex.quote(str(folder))}"
        )
    if not every:
        raise UserError(f"{folder} has no runs (neither manifests nor jobs that are starting)")
    return every


def is_pack(folder: Path) -> bool:
    """Whether a folder is from `kvbench pack`, which leaves out the files of a run's progress."""
    return (folder / PACK).is_file() and not record_files(folder)


def run_rows(folder: Path) -> list[Row]:
    """The rows of one run's folder: every shard of every request that no later one has taken over."""
    shares, damaged = shares_of(folder)
    return [share_row(folder, share) for share in shares] + [damaged_row(path) for path in damaged]


def note_row(path: Path) -> Row:
    """A job that has no folder yet."""
    try:
        return row(str(path), read_note(path), "0/?", held(lock_of(path)))
    except (OSError, ValueError, KeyError, RecursionError):
        return damaged_row(path)


def damaged_row(path: Path) -> Row:
    return Row(str(path), "", "", "", "damaged", error="this file is not a run's manifest")


def share_row(folder: Path, share: Share) -> Row:
    if share.last is None:
        return Row(str(folder), settings(share.request), shard_label(share.shard, share.shards), "0/?", "not begun")
    return row(str(folder), share.last, f"{share.made}/{share.wanted}", share.alive)


def row(place: str, attempt: dict[str, Any], records: str, alive: bool | None) -> Row:
    config, job = recorded(attempt), attempt.get("slurm") or {}
    number = f"{job['array']}_{job['task']}" if job.get("array") else job.get("job", "")
    restarts = f"restart {job['restarts']}" if job.get("restarts") else ""
    return Row(
        place,
        settings(attempt),
        shard_label(config.shard, config.shards),
        records,
        state(attempt, alive),
        attempt.get("ended", attempt["started"])[:19].replace("T", " "),
        " ".join(filter(None, (number, restarts, attempt.get("host")))),
        attempt.get("error", ""),
    )


def settings(attempt: dict[str, Any]) -> str:
    labels = attempt.get("settings", [])
    return ", ".join(labels) if len(labels) <= 2 else f"{labels[0]} and {len(labels) - 1} more"


def lines(rows: list[Row]) -> list[Text]:
    """The rows in columns, with a style for each state."""
    texts = [COLUMNS, *map(astuple, rows)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    padded = ["  ".join(map(str.ljust, line, widths)).rstrip() for line in texts]
    styles = ["bold", *(STYLE.get(row.state, "yellow") for row in rows)]
    return [Text(line, style) for style, line in zip(styles, padded, strict=True)]


def exit_code(rows: list[Row]) -> int:
    """0: all finished. 3: some still run. 1: some failed, stopped, were killed or have not begun."""
    states = {row.state for row in rows}
    return 0 if states <= {"finished"} else 3 if states <= {"finished", "running"} else 1


def main(arguments: Sequence[str]) -> int:
    """The exit code."""
    parser = Parser(
        "status",
        "Show the progress of runs: a row for every shard of every run folder, with the records done and "
        "requested, its state, and the error if it failed. A shard is `killed` if its manifest says running but its "
        "process is gone. A job that ended before its run had a folder left a file in "
        f"{STARTING}/: repeat it or delete it.",
        more="exit code: 0 if all finished, 3 if some are still running, 1 if some failed, were stopped or killed, or\n"
        "have not begun, 2 for a mistake in the command",
    )
    parser.add_argument(
        "folders", metavar="FOLDER", nargs="*", default=["runs"], help="a folder of runs, or of one run; default: runs"
    )
    options = parser.parse(arguments)
    all_rows = [row for folder in options.folders for row in rows(Path(folder))]
    for line in lines(all_rows):
        out.print(line, highlight=False, soft_wrap=True)
    return exit_code(all_rows)
