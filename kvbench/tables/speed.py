"""The table of a speed run: a row per setting at each length and batch."""

from collections.abc import Callable, Sequence
from pathlib import Path

import pandas as pd

from kvbench.benchmarks.speed import LARGEST, PLACE
from kvbench.papers.experiment import Experiment
from kvbench.papers.published import errata, footnotes
from kvbench.tables.layout import markdown_rows

BASELINE = "full"

MIB = 2**20

_FROM_RECORDS = (
    "setting method length new_tokens batch sequences fits r r_bytes prefill_seconds compress_seconds "
    "allocation_seconds first_token_seconds decode_seconds latency_seconds decode_tokens_per_s decode_steps full_bytes "
    "stored_bytes prefilled_bytes decoded_bytes peak_cache_bytes peak_device_bytes largest_batch largest_how memory "
    "stacked_layers machine threads torch"
).split()


def speeds(records: pd.DataFrame) -> pd.DataFrame:
    """One row per record, place by place of the grid, settings in order of appearance.

    low and high are tokens/s of the slowest and the fastest repeat; over_full is tokens/s over FullKV's at the same
    place (nan without it), each at its own batch where that is the largest.
    """
    frame = records.reindex(columns=_FROM_RECORDS)
    frame.insert(2, "asked", records["ratio"].astype(float).fillna(records["budget"].astype(float)))
    decoded = frame["sequences"] * frame["decode_steps"]
    spreads = [spread.get("decode", {}) for spread in records["spread_seconds"]]
    frame["low"] = decoded / pd.Series([spread.get("max") for spread in spreads], frame.index, dtype=float)
    frame["high"] = decoded / pd.Series([spread.get("min") for spread in spreads], frame.index, dtype=float)
    full = frame[frame["method"] == BASELINE].drop_duplicates(PLACE).set_index(PLACE)["decode_tokens_per_s"]
    places = pd.MultiIndex.from_frame(frame[PLACE])
    frame["over_full"] = frame["decode_tokens_per_s"] / full.reindex(places).to_numpy()
    order = {place: i for i, place in enumerate(dict.fromkeys(places))}
    settings = {setting: i for i, setting in enumerate(dict.fromkeys(frame["setting"]))}
    rank = [(order[place], settings[setting]) for place, setting in zip(places, frame["setting"], strict=True)]
    return frame.iloc[sorted(range(len(frame)), key=rank.__getitem__)].reset_index(drop=True)


def _number(digits: int, unit: float = 1) -> Callable[[float], str]:
    return lambda value: "–" if pd.isna(value) else f"{value / unit:.{digits}f}"


def _batch(row: pd.Series) -> str:
    if row["batch"] != LARGEST:
        return str(row["batch"])
    return f"{LARGEST}, {row['sequences']:.0f}" if row["fits"] else LARGEST


# header -> text of a row's cell
_CELLS: dict[str, Callable[[pd.Series], str]] = {
    "setting": lambda row: row["setting"],
    "prompt": lambda row: str(row["length"]),
    "new": lambda row: str(row["new_tokens"]),
    "batch": _batch,
    "prefill s": lambda row: _number(3)(row["prefill_seconds"]),
    "compress s": lambda row: _number(3)(row["compress_seconds"]),
    "latency s": lambda row: _number(2)(row["latency_seconds"]),
    "tokens/s": lambda row: _number(1)(row["decode_tokens_per_s"]),
    "slowest – fastest": lambda row: f"{_number(1)(row['low'])} – {_number(1)(row['high'])}" if row["fits"] else "–",
    "× full": lambda row: _number(2)(row["over_full"]),
    "cache MiB": lambda row: _number(1, MIB)(row["prefilled_bytes"]),
    "peak MiB": lambda row: _number(1, MIB)(row["peak_cache_bytes"]),
    "GPU MiB": lambda row: _number(0, MIB)(row["peak_device_bytes"]),
    "r_bytes": lambda row: _number(3)(row["r_bytes"]),
    "largest": lambda row: _number(0)(row["largest_batch"]),
}

# What a terminal of 80 columns has no room for; the files have it.
_WIDE = ("latency s", "slowest – fastest", "GPU MiB")


def cells(frame: pd.DataFrame, wide: bool = True) -> tuple[list[str], list[list[str]]]:
    """Header and rows as text; without the columns that say nothing here."""
    dull = set() if wide else {*_WIDE}
    if not wide and frame["new_tokens"].nunique() == 1:
        dull.add("new")
    columns = {"GPU MiB": "peak_device_bytes", "largest": "largest_batch", "× full": "over_full"}
    dull |= {name for name, column in columns.items() if frame[column].isna().all()}
    header = [name for name in _CELLS if name not in dull]
    return header, [[_CELLS[name](row) for name in header] for _, row in frame.iterrows()]


def notes(records: pd.DataFrame, frame: pd.DataFrame) -> list[str]:
    """What the columns mean and what the times rest on, in sentences."""
    first = records.iloc[0]
    repeats = max((len(each.get("decode", [])) for each in records["repeats_seconds"]), default=0)
    loads = [moment["load"] for each in records["conditions"] for moment in (each["before"], each["after"])]
    told = [
        f"Medians of {repeats} repeats on {first['machine']}, {first['threads']} threads, torch {first['torch']}; "
        f"load average {min(loads):.1f} to {max(loads):.1f}. Settings took turns, each with nothing of another alive.",
        "Prefill, with what the method observes in it, and compression are of one sequence; tokens/s and bytes of the "
        "whole batch, which is copies of that sequence. Latency adds one prefill and compression for each sequence.",
        "Cache: keys and values as stored after prefill. Peak: counted at the largest moment, prompts prefilled one "
        "after the other; a layer is compressed before the next where layers do not need each other.",
    ]
    if frame["largest_batch"].notna().any():
        how = "tried" if (frame["largest_how"] == "tried").any() else "counted: weights and caches, not activations"
        told.append(f"Largest: the largest batch that fits into memory, {how}.")
    if not frame["fits"].all():
        told.append("Without a time: the batch does not fit.")
    return told


def write_speeds(frame: pd.DataFrame, folder: Path, caption: str, below: Sequence[str]) -> list[Path]:
    """table.csv with every digit, table.md to read."""
    csv, markdown = folder / "table.csv", folder / "table.md"
    frame.to_csv(csv, index=False)
    lines = [caption, "", *markdown_rows(*cells(frame)), *(f"\n{note}" for note in below)]
    markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [csv, markdown]


def write_published(told: pd.DataFrame, used: pd.DataFrame, experiment: Experiment, folder: Path) -> list[Path]:
    """published.csv with every digit; published.md with the errata of the figures, and what the paper leaves open."""
    csv, markdown = folder / "published.csv", folder / "published.md"
    told.to_csv(csv, index=False)
    texts, _ = footnotes(used, errata(experiment.published))
    lines = [published_heading(used, experiment), "", *markdown_rows(*published_cells(told)), ""]
    lines += [f"- {text}" for text in [*experiment.chosen, *(f"The paper: {text}" for text in texts)]]
    markdown.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return [csv, markdown]


def published_heading(used: pd.DataFrame, experiment: Experiment) -> str:
    return f"{experiment.paper} {experiment.item} ({', '.join(dict.fromkeys(used['model']))}) beside this run"


def published_cells(told: pd.DataFrame) -> tuple[list[str], list[list[str]]]:
    header = [
        "setting",
        "prompt",
        "new",
        "quantity",
        "unit",
        "published",
        "ours",
        "published over first",
        "ours over first",
    ]
    numbers = ["published", "ours", "published_over_first", "ours_over_first"]
    return header, [
        [
            *(str(row[name]) for name in ("setting", "length", "new_tokens", "column", "unit")),
            *("–" if pd.isna(row[name]) else f"{row[name]:.4g}" for name in numbers),
        ]
        for _, row in told.iterrows()
    ]
