"""Tables and the figure of leaderboards: each method within a target of bytes, its score and its rank."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pandas as pd

from kvbench.configuration.conf import titled
from kvbench.errors import UserError
from kvbench.metrics.aggregate import tasks_of, units
from kvbench.metrics.bootstrap import clustered, paired_interval
from kvbench.records import load, manifests
from kvbench.records.identity import FULL
from kvbench.records.served_bytes import served_bytes
from kvbench.report.figures.needle_heatmap import ink
from kvbench.report.figures.style import SCALE, new_figure, save, scale
from kvbench.report.tables.text_table import MISSING, TextTable, number
from kvbench.runner.leaderboard.ranks import above, within
from kvbench.utils.environment import now
from kvbench.utils.files import write_atomically

LOSS = 0.1  # of a score between 0 and 1, that the table of least bytes allows
FACTS = ("kvbench", "git", "data_sha256", "processor", "torch", "transformers")  # of the runs, for manifest.json


@dataclass(frozen=True)
class Board:
    """A leaderboard: its heading, the measure of each of its parts, and the share of bytes that is compared."""

    heading: str
    measures: Mapping[str, str]
    size: str | None = None  # None: r_bytes as models are served, in 16 bits


def begun(runs: Path, board: Board) -> list[str]:
    """The parts of a board that `runs` has records of."""
    files = {part: (runs / part).glob("*/records*.jsonl") for part in board.measures}
    return [part for part, paths in files.items() if any(file.stat().st_size for file in paths)]


def complete(records: pd.DataFrame, measure: str) -> pd.DataFrame:
    """The records of samples that every setting has, with the measure as `value`."""
    whole = records.groupby("sample")["setting"].nunique() == records["setting"].nunique()
    records = records[records["sample"].map(whole)]
    return records.assign(value=[scores[measure] for scores in records["scores"]])


def settings_of(records: pd.DataFrame, measure: str, size: str | None = None) -> pd.DataFrame:
    """A row per setting over the samples that every setting has: method, r_bytes (`Board.size`), score (the mean over
    tasks, where there are several), low and high (95 %), and `loss`, the largest difference from FullKV on the same
    samples that its interval contains."""
    records = complete(records, measure)
    drawn = units(records)
    baseline = records[records["method"] == FULL].groupby("sample")["value"].mean()
    rows = []
    for (method, setting), group in records.groupby(["method", "setting"], sort=False):
        names = tasks_of(group)
        tasks = [of_task for _, of_task in group["value"].groupby(names)]
        low, high = clustered(tasks, [drawn[of_task.index] for of_task in tasks])
        values, of_full, labels = (list(x) for x in (group["value"], group["sample"].map(baseline), drawn[group.index]))
        lowest = paired_interval(values, of_full, names.tolist(), labels).low
        rows.append(
            {
                "method": method,
                "setting": setting,
                "samples": len(group),
                "r_bytes": (group[size] if size else served_bytes(group)).mean(),
                "score": float(np.mean([of_task.mean() for of_task in tasks])),
                "low": low,
                "high": high,
                "loss": max(-lowest, 0.0),
            }
        )
    return pd.DataFrame(rows)


def table(parts: Mapping[str, pd.DataFrame], target: float, title: str) -> TextTable:
    """Methods by their mean score over the parts; for each part r_bytes, score with interval, and rank."""
    ranked = {part: within(settings, target) for part, settings in parts.items()}
    scores = pd.DataFrame({part: methods["score"] for part, methods in ranked.items()})
    order = scores.mean(axis=1).sort_values(ascending=False, kind="stable").index
    header = [
        "method",
        *(f"{part.replace('_', ' ')}: {what}" for part in ranked for what in ("r_bytes", "score", "rank")),
    ]
    rows = [[method, *(cell for methods in ranked.values() for cell in cells(methods, method))] for method in order]
    return TextTable(header, rows, title)


def by_task(records: pd.DataFrame, methods: pd.DataFrame, title: str) -> TextTable:
    """The mean `value` of the records (`complete`) in each task, of the settings in `methods` (`within`)."""
    means = records.groupby(["setting", "task"])["value"].mean().unstack().loc[methods["setting"]]
    order = means.mean(axis=1).sort_values(ascending=False, kind="stable").index
    method_of = {setting: method for method, setting in methods["setting"].items()}
    rows = [[method_of[name], *(f"{score:.2f}" for score in means.loc[name])] for name in order]
    counts = records.groupby("task")["sample"].nunique()
    return TextTable(["method", *(f"{task} ({counts[task]})" for task in means.columns)], rows, title)


def cells(methods: pd.DataFrame, method: str) -> list[str]:
    if method not in methods.index:
        return [MISSING] * 3
    row = methods.loc[method]
    return [number(row["r_bytes"]), f"{row['score']:.2f} [{row['low']:.2f}, {row['high']:.2f}]", str(row["rank"])]


def enough(settings: pd.DataFrame) -> pd.DataFrame:
    """Each method's setting with the least bytes that loses at most LOSS, but FullKV; by bytes."""
    kept = settings[(settings["loss"] <= LOSS) & (settings["method"] != FULL)]
    return kept.sort_values("r_bytes", kind="stable").groupby("method", sort=False).first()


def least_bytes(parts: Mapping[str, pd.DataFrame]) -> TextTable:
    """Methods by the least bytes that any part needs, with r_bytes and the score there for each part."""
    least = {part: enough(settings) for part, settings in parts.items()}
    order = (
        pd.DataFrame({part: methods["r_bytes"] for part, methods in least.items()})
        .mean(axis=1)
        .sort_values(kind="stable")
        .index
    )
    header = ["method", *(f"{part.replace('_', ' ')}: {what}" for part in least for what in ("r_bytes", "score"))]
    rows = [
        [method, *(cell for methods in least.values() for cell in cells(methods.assign(rank=0), method)[:2])]
        for method in order
    ]
    title = f"## Least bytes that lose at most {LOSS:g} of the score"
    return TextTable(header, rows, f"{title}, by the 95 % interval of the difference from FullKV on the same samples")


def figure(parts: Mapping[str, pd.DataFrame], targets: Sequence[float], caption: str):
    """A panel per part: methods × targets, the score as colour and number; FullKV's is in the panel's title."""
    grids = {
        part: pd.DataFrame({f"{target:g}": within(settings, target)["score"].drop(FULL) for target in targets})
        for part, settings in parts.items()
    }
    order = pd.concat(grids).groupby(level=1).mean().mean(axis=1).sort_values(ascending=False).index
    if any(grid.reindex(order).isna().any(axis=None) for grid in grids.values()):
        caption += ". White: no setting of the method is within it"
    drawing, body = new_figure(3 + 1.9 * len(grids), 0.22 * len(order) + 1, caption)
    axes = body.subplots(1, len(grids), sharey=True, squeeze=False)[0]
    for axis, (part, grid) in zip(axes, grids.items(), strict=True):
        image = axis.imshow(grid.reindex(order), vmin=0, vmax=1, cmap=SCALE, aspect="auto")
        for (y, x), score in np.ndenumerate(grid.reindex(order)):
            if pd.notna(score):
                axis.text(x, y, f"{score:.2f}", ha="center", va="center", size=6, color=ink(score))
        full = parts[part].set_index("method").loc[FULL, "score"]
        axis.set_title(f"{part.replace('_', ' ')}\nFullKV: {full:.2f}", fontsize=8)
        axis.set_xticks(range(len(targets)), grid.columns, fontsize=7)
        axis.set_xlabel("r_bytes, at most", fontsize=8)
    axes[0].set_yticks(range(len(order)), map(titled, order), fontsize=7)
    scale(body, image, axes, "score (0 to 1)")
    return drawing


def report(runs: Path, target: Path, targets: Sequence[float], board: Board) -> None:
    """Write leaderboard.md, .csv, .png, .pdf and manifest.json to `target` from the parts that `runs` has."""
    names = begun(runs, board)
    if not names:
        raise UserError(f"{runs} has no records of {', '.join(board.measures)}: the script's run makes them")
    records = {part: load(runs / part) for part in names}
    parts = {part: settings_of(records[part], board.measures[part], board.size) for part in names}
    counts = ", ".join(f"{part.replace('_', ' ')} {int(settings['samples'].max())}" for part, settings in parts.items())
    caption = f"{board.heading}; samples: {counts}; each method's setting with the most bytes within the target"
    targets = [share for share in targets if any(len(within(settings, share)) > 1 for settings in parts.values())]
    target.mkdir(parents=True, exist_ok=True)
    pd.concat(parts, names=["part"]).reset_index("part").round(4).to_csv(target / "leaderboard.csv", index=False)
    tables = [table(parts, share, f"## r_bytes up to {share:g}") for share in targets]
    if any(len(enough(settings)) for settings in parts.values()):
        tables.append(least_bytes(parts))
    for part in names:
        if records[part]["task"].nunique() > 1:
            title = f"## {part.replace('_', ' ')}: tasks (samples), r_bytes up to"
            values = complete(records[part], board.measures[part])
            tables += [by_task(values, within(parts[part], share), f"{title} {share:g}") for share in targets]
    most = max(targets)
    others = {part: above(settings, most) for part, settings in parts.items()}
    if any(len(methods) for methods in others.values()):
        title = f"## Methods that need more than {most:g}, ranked among themselves"
        tables.append(table(others, float("inf"), title))
    write_atomically(
        target / "leaderboard.md", caption + "\n\n" + "\n".join(text_table.markdown() for text_table in tables)
    )
    save(figure(parts, targets, caption), target / "leaderboard")
    made = manifests(*(str(runs / part) for part in names))
    facts = {column: sorted({str(value) for value in made[column]}) for column in FACTS}
    write_atomically(target / "manifest.json", json.dumps({"made": now(), "samples": counts, **facts}, indent=2) + "\n")
