"""The leaderboard as tables of linked cells: an overview, two tables for each board, and who ran what."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import pandas as pd

from kvbench.configuration.conf import titled
from kvbench.records.consistency import WITH
from kvbench.records.identity import FULL
from kvbench.report.tables.text_table import MISSING, number
from kvbench.runner.leaderboard.boards import Board
from kvbench.runner.leaderboard.ranks import within
from kvbench.runner.leaderboard.submissions import Apart, Submission
from kvbench.utils.text import count

MOST_NAMES = 4  # of methods that tie, in the overview


class Cell(NamedTuple):
    """A text, and where its records are."""

    text: str
    link: str = ""


@dataclass(frozen=True)
class Table:
    """A title of a level of headings, a line about it, and cells; the first column holds names."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[Cell]]
    about: str = ""
    level: int = 2


def ranked(board: Board, target: float) -> pd.DataFrame:
    """The settings with all samples within a target of bytes: a row for each method of each submission."""
    complete = board.settings[board.settings["whole"]]
    entry = list(zip(complete["method"], complete["submission"], strict=True))
    return within(complete.assign(entry=entry), target, "entry")


def overview(all_boards: Sequence[Board], targets: Sequence[float]) -> Table:
    """Models × benchmarks × bytes: the methods of the best rank, FullKV left out."""
    sizes = {board.size for board in all_boards}
    size = sizes.pop() if len(sizes) == 1 else "r_bytes"
    header = ["model", "benchmark", "protocol", *(f"{size} ≤ {target:g}" for target in targets)]
    rows = [
        [
            *(Cell(board.model), Cell(board.benchmark, f"#{anchor(board.title)}"), Cell(board.facts)),
            *(Cell(leaders(board, target)) for target in targets),
        ]
        for board in all_boards
    ]
    return Table("Overview", header, rows, "The methods of the best rank within each target of bytes, FullKV aside.")


def leaders(board: Board, target: float) -> str:
    best = ranked(board, target)
    best = best[best["method"] != FULL]
    leading = best.loc[best["rank"] == best["rank"].min(), "method"]
    names = list(dict.fromkeys(map(titled, leading)))
    if not names:
        return MISSING
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def at_equal_bytes(board: Board, targets: Sequence[float], links: Sequence[str], names: Sequence[str]) -> Table:
    """Methods by their mean score over the targets; in each target r_bytes, score with its interval, and rank."""
    columns = {target: ranked(board, target) for target in targets}
    scores = pd.DataFrame({target: best["score"] for target, best in columns.items()})
    order = scores.mean(axis=1).sort_values(ascending=False, kind="stable").index
    rows = []
    for entry in order:
        method, submission = entry
        cells = [
            _ranked_cell(best.loc[[entry]].iloc[0], links) if entry in best.index else Cell(MISSING)
            for best in columns.values()
        ]
        rows.append([Cell(titled(method)), Cell(names[submission], links[submission]), *cells])
    header = ["method", "submission", *(f"{board.size} ≤ {target:g}" for target in targets)]
    about = f"{count(board.samples, 'sample')}: {board.measure} [95 % interval] at {board.size}, then the rank."
    about += f" {board.about}." if board.about else ""
    return Table(board.title, header, rows, about)


def _ranked_cell(row: pd.Series, links: Sequence[str]) -> Cell:
    rank = MISSING if pd.isna(row["rank"]) else f"#{row['rank']}"
    return Cell(f"{_score(row)} at {number(row['r_bytes'])}, {rank}", links[row["submission"]])


def _score(row: pd.Series) -> str:
    if pd.isna(row["low"]):
        return number(row["score"])
    return f"{row['score']:.3f} [{row['low']:.2f}, {row['high']:.2f}]"


def all_settings(board: Board, links: Sequence[str], names: Sequence[str]) -> Table:
    """Every setting of every submission, those of other engines and with fewer samples too."""
    engines = "cache_bytes" in board.settings
    rows = []
    for _, row in board.settings.iterrows():
        link = links[row["submission"]]
        cells = [Cell(titled(row["label"])), Cell(names[row["submission"]], link), Cell(number(row["r_bytes"]))]
        if engines:
            cells.append(Cell(row["cache_bytes"] if isinstance(row["cache_bytes"], str) else MISSING))
        samples = f"{row['samples']:,}" if row["whole"] else f"{row['samples']:,} of {board.samples:,}, not ranked"
        rows.append([*cells, Cell(_score(row), link), Cell(samples), Cell(f"{row['units']:,}")])
    extra = ["cache bytes"] if engines else []
    header = ["setting", "submission", board.size, *extra, board.measure, "samples", "units"]
    return Table("All settings", header, rows, level=3)


def who_ran_what(submissions: Sequence[Submission], links: Sequence[str]) -> Table:
    """A row for each submission: by whom, what, and on which machine with which versions, where any states them."""
    rows = []
    origins = [{name: short(name, submission.records[name]) for name in WITH} for submission in submissions]
    shown = [name for name in WITH if any(origin[name] for origin in origins)]
    for submission, link, origin in zip(submissions, links, origins, strict=True):
        records = submission.records
        about = [*(", ".join(map(str, records[name].dropna().unique())) for name in ("model", "benchmark"))]
        days = sorted({str(started)[:10] for started in records["started"].dropna()})
        when = days[0] if len(days) == 1 else f"{days[0]} to {days[-1]}" if days else MISSING
        note = submission.note
        amount = f"{count(len(records), 'record')}, {count(records['setting'].nunique(), 'setting')}"
        made_with = [origin[name] for name in shown]
        texts = [note.by, *about, amount, *made_with, when, submission.verified, note.notes]
        rows.append([Cell(submission.name, link), *(Cell(text or MISSING) for text in texts)])
    header = ["submission", "by", "model", "benchmark", "records", *shown, "date", "checks", "notes"]
    return Table("Who ran what, on which machine", header, rows)


def set_apart(apart: Sequence[Apart], links: Sequence[str]) -> Table:
    """A row for each folder that is not ranked, and why."""
    rows = [[Cell(entry.name, link), Cell(entry.why)] for entry, link in zip(apart, links, strict=True)]
    return Table("Not ranked", ["submission", "why"], rows, "kvbench verify FOLDER has all that was found.")


def short(name: str, values: pd.Series) -> str:
    """The distinct values of a column of provenance: a commit by its first ten digits, plug-ins with their versions."""
    texts: Iterable[str] = map(str, values.dropna().unique())
    if name == "git":
        texts = (text[:10] for text in texts)
    if name == "plugins":
        texts = (" and ".join(map(" ".join, json.loads(text).items())) for text in texts)
    return ", ".join(filter(None, texts))


def anchor(title: str) -> str:
    """The fragment of a heading, as GitHub makes it."""
    kept = "".join(letter for letter in title.lower() if letter.isalnum() or letter in " -_")
    return kept.replace(" ", "-")
