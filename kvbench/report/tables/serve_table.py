"""The table of servers under load: a row per setting and load, from records alone."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pandas as pd

from kvbench.configuration.conf import titled
from kvbench.engines.serving.capacity import knee
from kvbench.engines.serving.figures import FIGURES
from kvbench.report.tables.text_table import MISSING, TextTable, number, write_table
from kvbench.utils.text import count

GAUGES = ("running", "waiting", "cache_used", "cache_tokens")


class Shown(NamedTuple):
    """How a table shows a column of `serving`."""

    column: str
    digits: int
    spread: bool = False  # with its interval over repeats
    narrow: bool = False  # in a terminal of 80 columns, too


SHOWN = {
    "first token p50": Shown("first_token_ms_p50", 0, narrow=True),
    "p95": Shown("first_token_ms_p95", 0),
    "next token p50": Shown("inter_token_ms_p50", 1, narrow=True),
    "p95 ": Shown("inter_token_ms_p95", 1),
    "tokens/s": Shown("tokens_per_s", 1, spread=True, narrow=True),
    "of a request": Shown("request_tokens_per_s", 1),
    "requests/s": Shown("requests_per_s", 2),
    "good/s": Shown("good_requests_per_s", 2),
}


def columns_shown(frame: pd.DataFrame, wide: bool) -> dict[str, Shown]:
    """The columns of SHOWN that have values; a terminal shows fewer of them, without intervals."""
    known = {header: figure for header, figure in SHOWN.items() if frame[figure.column].notna().any()}
    return (
        known if wide else {header: figure._replace(spread=False) for header, figure in known.items() if figure.narrow}
    )


def serving(records: pd.DataFrame) -> pd.DataFrame:
    """A row per record, setting after setting: load, every figure with `_low` and `_high` over repeats, counts, the
    most of the server's gauges, and each setting's `knee`."""
    rows = [_row(record) for _, record in records.iterrows()]
    frame = pd.DataFrame(rows)
    knees = {
        setting: knee([*zip(group["rate"].astype(float), group["tokens_per_s"].astype(float), strict=True)])
        for setting, group in frame[frame["profile"] == "concurrent"].groupby("setting", sort=False)
    }
    return frame.assign(knee=frame["setting"].map(knees).astype(float))


def _row(record: pd.Series) -> dict[str, Any]:
    figures, intervals = record["figures"], record["intervals"]
    row = {"setting": record["setting"], "load": load_text(record["profile"], record["rate"])}
    row |= {name: record[name] for name in ("profile", "rate", "tool", "answered", "failed", "unfinished")}
    row["repeats"] = max((len(values) for values in record["repeats"].values()), default=0)
    for name in FIGURES:
        low, high = intervals.get(name, (float("nan"), float("nan")))
        row |= {name: figures.get(name, float("nan")), f"{name}_low": low, f"{name}_high": high}
    return row | {name: record["capacity"].get(name, float("nan")) for name in GAUGES}


def load_text(profile: str, rate: float | None) -> str:
    if rate is None or pd.isna(rate):
        return profile
    return f"{rate:g} at once" if profile == "concurrent" else f"{rate:g}/s {profile}"


def serve_table(frame: pd.DataFrame, title: str, notes: Sequence[str], wide: bool = True) -> TextTable:
    """The rows of `serving` as text, without columns that are empty."""
    shown = columns_shown(frame, wide)
    rows = [
        [
            f"{titled(row['setting'])} · {row['load']}",
            *(cell(row, figure) for figure in shown.values()),
            str(row["answered"]),
            str(row["failed"] + row["unfinished"]),
        ]
        for _, row in frame.iterrows()
    ]
    return TextTable(["setting · load", *shown, "answers", "failed"], rows, title, notes, frame["setting"].tolist())


def cell(row: pd.Series, shown: Shown) -> str:
    if pd.isna(row[shown.column]):
        return MISSING
    text = number(row[shown.column], shown.digits)
    low, high = (row[f"{shown.column}_{end}"] for end in ("low", "high"))
    if not shown.spread or pd.isna(low):
        return text
    return f"{text} ({number(low, shown.digits)}–{number(high, shown.digits)})"


def notes(records: pd.DataFrame, frame: pd.DataFrame) -> list[str]:
    """How it was measured, and capacity, in sentences."""
    loads = [average for averages in records["load_average"] for average in averages]
    limits: dict[str, float] = next((stated for stated in records["limits"] if stated), {})
    fewest, most = frame["repeats"].min(), frame["repeats"].max()
    repeats = f"{fewest} to {most} repeats" if fewest < most else count(int(most), "repeat")
    sentences = [
        f"{', '.join(records['tool'].unique())} · {repeats} of each load, in rounds; milliseconds, and means over "
        f"repeats with their 95 % interval · load average of this machine {min(loads):.1f} to {max(loads):.1f}",
        "percentiles are over answers; next token: the mean time between an answer's tokens; of a request: one "
        "answer's tokens a second",
    ]
    if limits:
        words = {"first_token_ms": "the first token", "token_ms": "each later one"}
        within = " and ".join(f"{limit:g} ms for {words[name]}" for name, limit in limits.items())
        sentences.append(f"good: within {within}")
    sentences += unsent(records)
    if errors := [error for error in records["first_error"] if error]:
        sentences.append(f"the first failure: {errors[0][:200]}")
    return [*sentences, *capacity_notes(frame)]


def unsent(records: pd.DataFrame) -> list[str]:
    """A sentence for each load whose time was over before all of its requests were sent."""
    return [sentence for _, record in records.iterrows() if (sentence := _unsent(record))]


def _unsent(record: pd.Series) -> str:
    requested = record.get("requested")
    if not isinstance(requested, dict):  # another tool's report
        return ""
    wanted = requested.get("requests", 0) * len(record["load_average"])
    sent = record["answered"] + record["failed"] + record["unfinished"]
    if sent >= wanted:
        return ""
    load = f"{titled(record['setting'])}, {load_text(record['profile'], record['rate'])}"
    within = f"benchmark.seconds={requested['seconds']:g}"
    return f"{load}: {wanted - sent} of {wanted} requests were never sent within {within}"


def capacity_notes(frame: pd.DataFrame) -> list[str]:
    """The knee of each setting and the most that its server said of itself, a line each where they are known."""
    lines = []
    for setting, group in frame.groupby("setting", sort=False):
        parts = []
        concurrent = group[group["profile"] == "concurrent"]
        if len(concurrent) > 1:
            at, largest = concurrent["knee"].iloc[0], concurrent["rate"].max()
            grows = f"tokens a second still grow at {largest:g} at once"
            parts.append(grows if pd.isna(at) else f"beyond {at:g} at once, tokens a second grow by less than a tenth")
        most = group[list(GAUGES)].max()
        if pd.notna(most["running"]):
            parts.append(f"at most {most['running']:g} requests ran and {most['waiting']:g} waited")
        if pd.notna(most["cache_used"]):
            parts.append(f"at most {100 * most['cache_used']:.0f} % of the cache was used")
        if pd.notna(most["cache_tokens"]):
            parts.append(f"the cache has room for {most['cache_tokens']:,.0f} tokens")
        if parts:
            lines.append(f"capacity of {titled(str(setting))}: {'; '.join(parts)}")
    return lines


def write_serving(frame: pd.DataFrame, folder: Path, title: str, notes: Sequence[str]) -> list[Path]:
    return write_table(frame, serve_table(frame, title, notes), folder)
