"""Predictions scored again: the table by task, and its differences from scores known before."""

from collections.abc import Mapping, Sequence

import pandas as pd

from kvbench.benchmarks.longbench.benchmark import BUCKETS
from kvbench.benchmarks.longbench.tasks import AVERAGES, GROUPS, LONGBENCH_E
from kvbench.evaluation.rescore import Scored, official_means, row_name
from kvbench.metrics.aggregate import breakdown

PUBLISHED = "published"
SHOWN = 5  # scores that differ from the stored ones


def by_setting(scored: Sequence[Scored]) -> dict[str, list[Scored]]:
    settings: dict[str, list[Scored]] = {}
    for prediction in scored:
        settings.setdefault(prediction.setting, []).append(prediction)
    return settings


def table(scored: Sequence[Scored], known: Mapping[str, float] | None = None) -> pd.DataFrame:
    """The breakdown with a column for each setting, and one for the `known` scores of rows that are there.

    Every sample goes in with its row's official mean, so that the table cannot round another way.
    """
    columns = {setting: official_means(ones) for setting, ones in by_setting(scored).items()}
    columns |= {PUBLISHED: dict(known)} if known else {}
    rows = [
        {
            "task": prediction.row,
            "setting": setting,
            "sample": prediction.sample,
            "scores": {"score": columns[setting][prediction.row] / 100},
        }
        for setting in columns
        for prediction in scored
        if setting in (prediction.setting, PUBLISHED) and prediction.row in columns[setting]
    ]
    if any(prediction.bucket for prediction in scored):
        ranges = {part: [row_name(task, part) for task in LONGBENCH_E] for part in BUCKETS}
        return breakdown(pd.DataFrame(rows), ranges, None)
    return breakdown(pd.DataFrame(rows), GROUPS, AVERAGES)


def compare_published(frame: pd.DataFrame, known: Mapping[str, float], source: str) -> tuple[pd.DataFrame, list[str]]:
    """The table with differences, rows that differ marked with ≠, and a sentence with their number."""
    if not known:
        return frame, []
    if PUBLISHED not in frame:
        return frame, [f"{source} has none of these scores, but: {', '.join(known)}"]
    difference = (frame["score"] - frame[PUBLISHED]).round(2)
    differs = difference.abs() > 0
    tasks = frame["kind"] == "task"
    away, compared = (tasks & differs).sum(), (tasks & difference.notna()).sum()
    notes = [f"{away} of {compared} scores differ from {source}" if away else f"all {compared} scores equal {source}"]
    for text, rows in {
        f"in {source} and not here": [row for row in known if row not in set(frame["task"])],
        f"here and not in {source}": list(frame["task"][tasks & difference.isna()]),
    }.items():
        notes += [f"{text}: {', '.join(rows)}"] if rows else []
    marked = frame["task"].where(~differs, frame["task"] + " ≠")
    return frame.assign(task=marked, difference=difference), notes


def compare_records(scored: Sequence[Scored]) -> list[str]:
    """In words whether every prediction scores as its record says; the first SHOWN that do not."""
    away = []
    for prediction in scored:
        where, stored = f"{prediction.sample} under {prediction.setting}", prediction.stored or {}
        away += [
            f"  {where}: {name} is {stored.get(name)} in the record and {score} now"
            for name, score in prediction.scores.items()
            if name not in stored or abs(score - stored[name]) > 1e-9
        ]
    if not away:
        return [f"all {len(scored)} records score as stored"]
    rest = [f"  and {len(away) - SHOWN} more"] if len(away) > SHOWN else []
    return [f"scores that differ from the stored ones: {len(away)}", *away[:SHOWN], *rest]
