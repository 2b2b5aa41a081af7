"""The table of a run: one row per setting, from records alone."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from kvbench.configuration.conf import titled
from kvbench.metrics.aggregate import bounds, tasks_of, tokens_per_s, units
from kvbench.metrics.bootstrap import clustered
from kvbench.metrics.thinking import BEGIN_OF_THINKING, never_ends
from kvbench.records.identity import FULL, requested
from kvbench.records.ratios import means
from kvbench.records.served_bytes import COUNTED, IN_16, name_of
from kvbench.report.tables.agreement import measure_text
from kvbench.report.tables.engine_columns import BYTES, engine_notes, has_engines, of_engines
from kvbench.report.tables.span_table import of_spans
from kvbench.report.tables.text_table import MISSING, TextTable, number, write_table
from kvbench.utils.text import shortest

# The remark on settings whose ratio or budget is below the least that the method can keep.
FLOORED = "the request is below the smallest cache that the method can make; r is what it kept"
FLOORED_MARK = "*"
# The remark on settings that search for the requested ratio and missed it by more than 1 % on some sample.
MISSED = "the requested ratio was not reached within 1 % on every sample; r is the result"
MISSED_MARK = "§"
# The remark on settings whose r differs from the requested ratio for another reason.
FAR = 0.1  # relative
OFF = (
    "r differs from the requested ratio by more than 10 %: the request is a share of tokens, and r is the result; "
    "control=exact, in methods that have it, searches for the requested r"
)
OFF_MARK = "†"
# column of `summarise` -> mark of the requested ratio and remark below the table
REMARKS = {"floored": (FLOORED_MARK, FLOORED), "target_missed": (MISSED_MARK, MISSED), "off": (OFF_MARK, OFF)}
WINDOW_COLUMNS = ("r_full", "r_bytes_full", "r_bytes_floor")  # columns for models with layers that are not compressed
UNEVEN = "settings have different samples: compare only settings over the same samples"
UNENDED = "thinking_never_ends"  # column of `summarise`, if an answer never ends its thinking
VISIBLE = 5e-4  # differences of ratios that three digits show
WINDOWS = (
    "r and r_bytes cover all layers; r_bytes_full covers those with full attention, to which the requested ratio "
    "applies. The {others} of the other layers alone take {floor} of FullKV's bytes, so r_bytes is never less"
)
DISTANCE = "top1, kl: share of equal next tokens and divergence (nats per token) from FullKV, along FullKV's own answer"
UNSCORED = "no score: no answer is expected, and no distance from FullKV was measured (distance=true)"
TEXT = "top1, kl: share of equal next tokens and divergence (nats per token) from FullKV, along the scored text"


def summarise(records: pd.DataFrame, metrics: Sequence[str]) -> pd.DataFrame:
    """One row per setting in order of first appearance: means over samples, and the score's 95 % interval.

    If records name their task, a score is the mean over the tasks' means; a score that only some tasks or samples have
    is the mean over these. low and high bound the interval of `metrics[0]`, for which the samples of a unit are drawn
    together (`kvbench.metrics.aggregate.units`); `units` is their number, and `scored` that of the samples drawn.
    `lacking` is the number of samples of other settings that a setting does not have.
    """
    rows, samples = [], records["sample"].nunique()
    thinks = "prediction" in records and bool(records["prediction"].map(never_ends).any())
    for setting, group in records.groupby("setting", sort=False):
        record = group.iloc[0]
        scores = pd.DataFrame(list(group["scores"]), index=group.index, columns=list(metrics))
        first = scores[metrics[0]].dropna()
        drawn = units(group)[first.index]
        tasks = tasks_of(group)
        strata = [values for _, values in first.groupby(tasks)]
        scores = scores.groupby(tasks).mean()
        of_score = bounds(metrics[0], full=record["method"] == FULL)
        low, high = clustered(strata, [drawn[values.index] for values in strata], of_score)
        rows.append(
            {
                "setting": setting,
                "method": record["method"],
                "requested": record["ratio"] if pd.notna(record["ratio"]) else record["budget"],
                "request": requested(record["ratio"], record["budget"]).partition(" ")[0],
                **means(group),
                "bytes": name_of(records),
                **{metric: scores[metric].mean() for metric in metrics},
                "low": low,
                "high": high,
                "decode_tokens_per_s": tokens_per_s(group),
                "samples": len(group),
                "lacking": samples - group["sample"].nunique(),
                "scored": len(first),
                "units": drawn.nunique(),
                "floored": bool(group["floored"].any()),
                "target_missed": target_missed(group),
                "off": ratio_off(group),
                "changes_while_decoding": changes_while_decoding(group),
                **({name: group[name].mean() for name in WINDOW_COLUMNS} if has_windows(group) else {}),
                **({"others": other_contents(group)} if has_windows(group) else {}),
                **(of_engines(group) if has_engines(records) else {}),
                **of_spans(group),
                **({UNENDED: int(group["prediction"].map(never_ends).sum())} if thinks else {}),
            }
        )
    return pd.DataFrame(rows)


def target_missed(records: pd.DataFrame) -> bool:
    """Whether any record is marked so; records of earlier versions are not."""
    return "target_missed" in records and bool(records["target_missed"].eq(True).any())


def ratio_off(records: pd.DataFrame) -> bool:
    """Whether a setting's mean r is further than FAR from the requested ratio without another mark.

    Ratios of anything but the prompt, which labels name, are not compared: r is a share of the prompt.
    """
    record = records.iloc[0]
    if pd.isna(record["ratio"]) or not record["setting"].partition(" (")[0].endswith(f" {record['ratio']:g}"):
        return False
    marked = records["floored"].any() or target_missed(records)
    column = "r_full" if has_windows(records) else "r"  # ratios are requested of layers with full attention
    return not marked and bool(abs(records[column].mean() / record["ratio"] - 1) > FAR)


def other_contents(records: pd.DataFrame) -> str:
    """The contents of layers that no method compresses, in words."""
    states = records["state_bytes"].fillna(0) if "state_bytes" in records else 0 * records["window_bytes"]
    kinds = ["sliding windows"] * bool((records["window_bytes"] > states).any()) + ["states"] * bool((states > 0).any())
    return " and ".join(kinds)


def has_windows(records: pd.DataFrame) -> bool:
    """Whether the model has layers that no method compresses: with a sliding window, or a state of fixed size."""
    return "window_bytes" in records and bool(records["window_bytes"].notna().any())


def changes_while_decoding(records: pd.DataFrame) -> bool:
    """Whether caches did not simply grow by equally many bytes, at least FullKV's, with each decoded token.

    r_mean then differs from what r_bytes implies. False for records of versions without these bytes.
    """
    if "decode_bytes_mean" not in records:
        return False
    full = records["decode_bytes_mean"] / records["r_mean"]  # FullKV's, mean over the same passes
    if has_windows(records):  # these add the same to both
        last = records["decode_bytes_end"] / records["r_end"] - records["full_bytes"]
        rate = ((records["decode_bytes_end"] - records["stored_bytes"]) / last).where(last > 0, 1)
        plain = records["stored_bytes"] + np.maximum(rate, 1) * (full - records["full_bytes"])
        return bool(((records["decode_bytes_mean"] - plain).abs() / full).gt(VISIBLE).where(last > 0, False).any())
    token = records["full_bytes"] / records["prompt_tokens"]
    grown = (full - records["full_bytes"]) / token  # tokens read by then, mean over the passes
    per_token = (records["decode_bytes_end"] - records["stored_bytes"]) / records["decode_tokens"]
    plain = records["stored_bytes"] + np.maximum(per_token, token) * grown
    return bool(((records["decode_bytes_mean"] - plain).abs() / full).gt(VISIBLE).where(grown > 0, False).any())


def uneven(summary: pd.DataFrame) -> bool:
    """Whether any setting lacks a sample that another one has, so that their means are over different samples."""
    return bool(summary["lacking"].any())


def run_table(summary: pd.DataFrame, metrics: Sequence[str], title: str) -> TextTable:
    """The rows of `summarise` as text; tokens/s only where those of all settings decoded one by one.

    r_bytes_full where layers have a sliding window, r_mean where a setting changes its cache while decoding, r_read
    where attention read less or more than was held, samples where settings have different ones.
    """
    speeds = int(summary["decode_tokens_per_s"].notna().all())
    differ = int(uneven(summary))
    windows = "r_bytes_full" in summary
    size = summary["bytes"].iloc[0]
    ratios = ["r", size, *["r_bytes_full"] * windows, *["r_mean"] * bool(summary["changes_while_decoding"].any())]
    ratios += ["r_read"] * bool((summary["r_read"] - summary["r_mean"]).abs().gt(VISIBLE).any())
    engines = "cache_bytes" in summary
    header = [
        "method",
        "requested",
        *ratios,
        *["cache bytes"] * engines,
        metrics[0],
        "95 % interval",
        *metrics[1:],
        *["samples"] * differ,
    ]
    rows = [
        [
            titled(row["method"]),
            _requested(row),
            *(number(row[name]) for name in ratios),
            *([row["cache_bytes"]] if engines else []),
            measure_text(metrics[0], row[metrics[0]]),
            MISSING if pd.isna(row["low"]) else f"{row['low']:.2f}–{row['high']:.2f}",
            *(measure_text(metric, row[metric]) for metric in metrics[1:]),
            *[f"{row['samples']:,}"] * differ,
            *[number(row["decode_tokens_per_s"], 1)] * speeds,
        ]
        for _, row in summary.iterrows()
    ]
    notes = [f"{mark} {remark}" for column, (mark, remark) in REMARKS.items() if summary[column].any()]
    notes += [COUNTED] * (size == IN_16 and bool((summary[IN_16] - summary["r_bytes"]).abs().gt(VISIBLE).any()))
    if windows:
        notes.append(WINDOWS.format(others=summary["others"].iloc[0], floor=number(summary["r_bytes_floor"].mean())))
    notes += [UNEVEN] * differ
    notes += [BYTES, *engine_notes(summary)] if engines else []
    if UNENDED in summary:
        notes.append(_unended(summary))
    if summary[[*metrics]].isna().all(axis=None):
        notes.append(UNSCORED)
    elif "units" in summary:
        notes.append(_drawn(summary))
    if "kl" in metrics:
        notes.append(TEXT if "bits_per_byte" in metrics else DISTANCE)
    return TextTable(
        [*header, *["tokens/s"] * speeds], rows, title, notes, lead=2, repeats={size: ["r", "r_mean", "r_read"]}
    )


def _unended(summary: pd.DataFrame) -> str:
    """The number of each setting's answers that think and never answer."""
    settings = zip(summary["setting"], summary[UNENDED], summary["samples"], strict=True)
    counts = [f"{setting}: {unended:,} of {samples:,}" for setting, unended, samples in settings]
    return f"answers that begin with {BEGIN_OF_THINKING} and never end it: {'; '.join(counts)}"


def _drawn(summary: pd.DataFrame) -> str:
    """The units that the intervals draw."""
    counts = summary["units"][summary["scored"] > 0]
    fewest, most = counts.min(), counts.max()
    if most == 1:
        return "no interval: all samples with a score are about one text, so nothing was drawn independently"
    drawn = f"{fewest}" if fewest == most else f"{fewest} to {most}"
    samples = summary["scored"].max()
    together = "" if most == samples else f" with {samples:,} samples"
    none = f"; {MISSING}: none, as values without bounds do not vary, or a task has a single text or problem"
    interval = f"95 % interval: bootstrap over {drawn} texts or problems drawn independently{together}"
    return interval + none * bool(summary["low"].isna().any())


def _requested(row: pd.Series) -> str:
    if pd.isna(row["requested"]):
        return MISSING
    return shortest(row["requested"]) + "".join(mark * row[column] for column, (mark, _) in REMARKS.items())


def write_run_table(summary: pd.DataFrame, metrics: Sequence[str], folder: Path, title: str) -> list[Path]:
    return write_table(summary, run_table(summary, metrics, title), folder)
