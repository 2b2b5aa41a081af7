"""The table of a speed run: a row per setting at each length and batch."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from kvbench.benchmarks.speed import ALIKE, LARGEST, MEASURED_ON, PLACE
from kvbench.configuration import Experiment
from kvbench.configuration.conf import titled
from kvbench.papers.published import errata, footnotes
from kvbench.records.identity import FULL
from kvbench.report.tables.text_table import MISSING, TextTable, number, write_table
from kvbench.utils.text import count

MIB = 2**20

_FROM_RECORDS = (
    "setting method length new_tokens batch sequences fits r r_bytes prefill_seconds compress_seconds "
    "allocation_seconds first_token_seconds decode_seconds latency_seconds decode_tokens_per_s decode_steps full_bytes "
    "stored_bytes prefilled_bytes decoded_bytes peak_cache_bytes peak_device_bytes largest_batch largest_how memory "
    "stacked_layers decode_engine machine threads torch kernels"
).split()


def by_machine(records: pd.DataFrame) -> list[pd.DataFrame]:
    """The records of each of MEASURED_ON, in order of appearance."""
    known = [name for name in MEASURED_ON if name in records]
    groups = records.groupby(known, sort=False, dropna=False)
    return [group.reset_index(drop=True) for _, group in groups]


def speeds(records: pd.DataFrame) -> pd.DataFrame:
    """One row per record, by place of the grid (PLACE), then by setting in order of appearance.

    requested is the ratio or budget; low and high are tokens/s of the slowest and the fastest repeat; over_full is
    tokens/s over FullKV's at the same place, MEASURED_ON the same and by the same decode_engine (nan without it), each
    at its largest batch where that is the place's.
    """
    frame = records.reindex(columns=_FROM_RECORDS)
    frame["decode_engine"] = frame["decode_engine"].astype(object).fillna("eager")  # as in records of earlier versions
    frame["kernels"] = frame["kernels"].astype(object).fillna("")  # without a manifest
    frame.insert(2, "requested", records["ratio"].astype(float).fillna(records["budget"].astype(float)))
    decoded = frame["sequences"] * frame["decode_steps"]
    spreads = [spread.get("decode", {}) for spread in records["spread_seconds"]]
    frame["low"] = decoded / pd.Series([spread.get("max") for spread in spreads], frame.index, dtype=float)
    frame["high"] = decoded / pd.Series([spread.get("min") for spread in spreads], frame.index, dtype=float)
    full = frame[frame["method"] == FULL].drop_duplicates(ALIKE).set_index(ALIKE)["decode_tokens_per_s"]
    frame["over_full"] = frame["decode_tokens_per_s"] / full.reindex(pd.MultiIndex.from_frame(frame[ALIKE])).to_numpy()
    places = pd.MultiIndex.from_frame(frame[PLACE])
    order = {place: i for i, place in enumerate(dict.fromkeys(places))}
    settings = {setting: i for i, setting in enumerate(dict.fromkeys(frame["setting"]))}
    rank = [(order[place], settings[setting]) for place, setting in zip(places, frame["setting"], strict=True)]
    return frame.iloc[sorted(range(len(frame)), key=rank.__getitem__)].reset_index(drop=True)


def _number(column: str, digits: int, unit: float = 1) -> Callable[[pd.Series], str]:
    return lambda row: number(row[column] / unit, digits) if pd.notna(row[column]) else MISSING


def _batch(row: pd.Series) -> str:
    if row["batch"] != LARGEST:
        return str(row["batch"])
    return f"{LARGEST}, {row['sequences']:.0f}" if row["fits"] else LARGEST


def _spread(row: pd.Series) -> str:
    return f"{number(row['low'], 1)} – {number(row['high'], 1)}" if row["fits"] else MISSING


# header -> text of a row's cell
_CELLS: dict[str, Callable[[pd.Series], str]] = {
    "setting": lambda row: titled(row["setting"]),
    "prompt": lambda row: str(row["length"]),
    "new": lambda row: str(row["new_tokens"]),
    "batch": _batch,
    "engine": lambda row: row["decode_engine"],
    "prefill s": _number("prefill_seconds", 3),
    "compress s": _number("compress_seconds", 3),
    "latency s": _number("latency_seconds", 2),
    "tokens/s": _number("decode_tokens_per_s", 1),
    "slowest – fastest": _spread,
    "× full": _number("over_full", 2),
    "cache MiB": _number("prefilled_bytes", 1, MIB),
    "peak MiB": _number("peak_cache_bytes", 1, MIB),
    "GPU MiB": _number("peak_device_bytes", 0, MIB),
    "r_bytes": _number("r_bytes", 3),
    "largest": _number("largest_batch", 0),
}

# Columns of the files for which a terminal of 80 columns has no room.
_WIDE = ("latency s", "slowest – fastest", "GPU MiB")


def speed_table(frame: pd.DataFrame, title: str, notes: Sequence[str], wide: bool = True) -> TextTable:
    """The rows of `speeds` as text, without columns that are empty; `wide` includes those of _WIDE."""
    left_out = set() if wide else {*_WIDE}
    if not wide and frame["new_tokens"].nunique() == 1:
        left_out.add("new")
    sources = {"GPU MiB": "peak_device_bytes", "largest": "largest_batch", "× full": "over_full"}
    left_out |= {name for name, column in sources.items() if frame[column].isna().all()}
    if (frame["decode_engine"] == "eager").all():
        left_out.add("engine")
    header = [name for name in _CELLS if name not in left_out]
    return TextTable(header, [[_CELLS[name](row) for name in header] for _, row in frame.iterrows()], title, notes)


def measured_on(frame: pd.DataFrame) -> str:
    """MEASURED_ON in words, for rows of `speeds` that share it; kernels only where they are known."""
    row = frame.iloc[0]
    kernels = f", kernels of {row['kernels']}" if row["kernels"] else ""
    return f"{row['machine']}, {count(row['threads'], 'thread')}, torch {row['torch']}{kernels}"


def notes(records: pd.DataFrame, frame: pd.DataFrame) -> list[str]:
    """The measurement and the columns, in sentences."""
    repeats = max((len(each.get("decode", [])) for each in records["repeats_seconds"]), default=0)
    loads = [moment["load"] for each in records["conditions"] for moment in (each["before"], each["after"])]
    sentences = [
        f"Medians of {count(repeats, 'repeat')} on {measured_on(frame)}; "
        f"load average {min(loads):.1f} to {max(loads):.1f}. "
        "Settings ran in turns, each alone in memory.",
        "Prefill (with the method's observations) and compression are of one sequence; tokens/s and bytes are of the "
        "whole batch, which consists of copies of that sequence. Latency includes one prefill and compression each.",
        "Cache: keys and values as stored after prefill. Peak: the most bytes counted at any time, with prompts "
        "prefilled one after the other, and each layer compressed before the next where layers are independent.",
    ]
    if frame["largest_batch"].notna().any():
        how = "tried" if (frame["largest_how"] == "tried").any() else "counted: weights and caches, not activations"
        sentences.append(f"Largest: the largest batch that fits into memory, {how}.")
    if (frame["decode_engine"] != "eager").any():
        sentences.append(
            "Engine: graph repeats a step as one CUDA graph, fused one of compiled layers, eager launches it from "
            "Python; × full is within one."
        )
    if not frame["fits"].all():
        sentences.append("No time: the batch does not fit.")
    return sentences


def published_table(compared: pd.DataFrame, used: pd.DataFrame, experiment: Experiment) -> TextTable:
    """What `papers.comparison.compare_speed` found, as text; `used` are the published values behind it.

    Batch, machine and engine have columns where several were measured.
    """
    always = ("length", "new_tokens")
    varied = [name for name in ALIKE if name not in always and compared[name].nunique(dropna=False) > 1]
    texts = ("setting", *always, *varied, "column", "unit")
    numbers = ("published", "ours", "published_over_first", "ours_over_first")
    header = ["setting", "prompt", "new", *(name.removeprefix("decode_") for name in varied), "quantity", "unit"]
    header += ["published", "ours", "published over first", "ours over first"]
    rows = [
        [
            *(str(row[name]) for name in texts),
            *(MISSING if pd.isna(row[name]) else f"{row[name]:.4g}" for name in numbers),
        ]
        for _, row in compared.iterrows()
    ]
    title = f"{experiment.paper} {experiment.item} ({', '.join(dict.fromkeys(used['model']))}) beside this run"
    return TextTable(header, rows, title)


def write_published(compared: pd.DataFrame, used: pd.DataFrame, experiment: Experiment, folder: Path) -> list[Path]:
    """published.csv with every digit; published.md with the errata and our choices where the paper leaves one."""
    texts, _ = footnotes(used, errata(experiment.published))
    notes = [f"- {text}" for text in [*experiment.chosen, *(f"The paper: {text}" for text in texts)]]
    table = replace(published_table(compared, used, experiment), notes=["\n".join(notes)])
    return write_table(compared, table, folder, "published")
