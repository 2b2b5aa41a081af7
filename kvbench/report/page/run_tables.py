"""The page's tables: settings, tasks and needle grids, by the functions that make the run's own tables."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from kvbench.configuration.conf import titled
from kvbench.metrics.aggregate import breakdown, tasks_of
from kvbench.report.tables.differences import against, alone_note, baseline_alone, notes, pairs
from kvbench.report.tables.run_table import REMARKS, summarise
from kvbench.utils.ratios import RATIOS
from kvbench.utils.text import shortest

# Properties by which scores are averaged too, where several samples of a task share a value.
BESIDE_TASK = ("length", "bucket", "depth")
TWO_DIGITS = 1e-4  # numbers from here on have two digits among 5 decimals
UNNAMED = "without a task"  # the row of samples without one, where others have one


def settings(frame: pd.DataFrame, metrics: Sequence[str]) -> list[dict[str, Any]]:
    """One row per setting: means over samples, and [mean, low, high] of every metric (null where unknown)."""
    labelled = frame.assign(setting=frame["label"])
    parameters = dict(zip(frame["label"], frame["parameters"], strict=True))
    # `summarise` gives the interval of the first metric: each metric is the first once
    by_metric = [summarise(labelled, [name, *(m for m in metrics if m != name)]) for name in metrics]
    scores = [
        {
            name: [number(rows[column].iat[i]) for column in (name, "low", "high")]
            for name, rows in zip(metrics, by_metric, strict=True)
        }
        for i in range(len(by_metric[0]))
    ]
    return [
        {
            "label": titled(row["setting"]),
            "method": row["method"],
            "title": titled(row["method"]),
            "requested": number(row["requested"]),
            **{column: bool(row[column]) for column in REMARKS},
            **{name: number(row[name]) for name in RATIOS},
            "r_bytes": number(row[row["bytes"]]),  # as served
            "scores": of_metrics,
            "samples": int(row["samples"]),
            "tokens_per_s": number(row["decode_tokens_per_s"]),
            "parameters": parameters[row["setting"]],
        }
        for (_, row), of_metrics in zip(by_metric[0].iterrows(), scores, strict=True)
    ]


def differences(frame: pd.DataFrame, metric: str) -> dict[str, Any]:
    """For each setting the differences of the others from it, by label; and the page's notes below them. Of many
    settings for one alone (`baseline_alone`)."""
    labelled = frame.assign(setting=frame["label"])
    alone = baseline_alone(labelled)
    every = pairs(labelled, metric, alone)
    by_baseline = {label: against(every, label) for label in (frame["label"].unique() if alone is None else [alone])}
    columns = ("setting", "difference", "low", "high", "p", "p_holm", "wins", "ties", "losses", "samples")
    return {
        "metric": metric,
        "of": {
            titled(label): [
                {name: titled(row[name]) if name == "setting" else number(row[name]) for name in columns}
                for _, row in compared.iterrows()
            ]
            for label, compared in by_baseline.items()
        },
        "notes": {
            titled(label): ". ".join(filter(None, [*notes(compared, metric), alone_note(labelled)]))
            for label, compared in by_baseline.items()
            if len(compared)
        },
    }


def tasks(frame: pd.DataFrame, metric: str) -> list[dict[str, Any]]:
    """Scores by task, and by task and each of BESIDE_TASK, a column per setting; empty for a single task.

    Samples without the score, such as those without a known answer, are left out; those without a task are one more.
    """
    if "task" not in frame:
        return []
    labels = list(frame["label"].unique())
    frame = frame[[metric in scores for scores in frame["scores"]]]
    frame = frame.assign(setting=frame["label"], task=tasks_of(frame).replace("", UNNAMED))
    tables = [{"by": "task", "rows": _rows(frame, metric, labels)}] if frame["task"].nunique() > 1 else []
    for name in BESIDE_TASK:
        if name in frame and frame[name].nunique() > 1 and _shared(frame, name):
            task = frame["task"] + " · " + frame[name].map(_text)
            tables.append({"by": f"task and {name}", "rows": _rows(frame.assign(task=task), metric, labels)})
    return tables


def _rows(frame: pd.DataFrame, metric: str, labels: Sequence[str]) -> list[dict[str, Any]]:
    """The rows of `breakdown`, with the mean over all tasks at the end, and a score for each of `labels`."""
    names = list(frame["task"].unique())
    groups = {"mean": names} if len(names) > 1 else {names[0]: names}
    rows = breakdown(frame, groups, None, metric)
    return [
        {
            "task": row["task"],
            "kind": row["kind"],
            "samples": int(row["samples"]),
            "scores": [number(row.get(label, math.nan) / 100) for label in labels],
        }
        for _, row in rows.iterrows()
    ]


def _shared(frame: pd.DataFrame, name: str) -> bool:
    samples = frame.drop_duplicates("sample")
    return len(samples) >= 2 * len(samples[["task", name]].drop_duplicates())


def heatmap(frame: pd.DataFrame, metrics: Sequence[str]) -> dict[str, Any] | None:
    """Means per cell of depth × length, grids[metric][setting][depth][length]; None without depths and lengths."""
    if not {"depth", "length"} <= {*frame.columns} or frame[["depth", "length"]].isna().any(axis=None):
        return None
    try:
        depths, lengths = (sorted(frame[name].unique()) for name in ("depth", "length"))
    except TypeError:  # numbers and texts together, of rows of the user's own, have no order
        return None
    labels = list(frame["label"].unique())
    grids = {}
    for name in metrics:
        scored = frame.assign(score=[scores.get(name, math.nan) for scores in frame["scores"]])
        means = scored.groupby(["label", "depth", "length"])["score"].mean()
        every_cell = pd.MultiIndex.from_product([labels, depths, lengths])
        cells = means.reindex(every_cell).to_numpy().reshape(len(labels), len(depths), len(lengths))
        grids[name] = [[[number(cell) for cell in row] for row in grid] for grid in cells]
    return {"depths": [plain(x) for x in depths], "lengths": [plain(x) for x in lengths], "grids": grids}


def number(value: object) -> object:
    """A value as JSON has it, numbers to 5 decimals, and with two digits where these would be fewer."""
    value = plain(value)
    if not isinstance(value, float):
        return value
    return round(value, 5) if abs(value) >= TWO_DIGITS else float(f"{value:.2g}")


def plain(value: object) -> object:
    """A value of a frame as a Python type: whole floats as integers, None for nan."""
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, float):
        return None if not math.isfinite(value) else int(value) if value.is_integer() else value
    return value


def _text(value: object) -> str:
    return shortest(value) if isinstance(value, int | float) else str(value)
