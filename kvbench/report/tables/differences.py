"""Differences between a run's settings over the same samples: every two of them, and all from one baseline."""

from itertools import combinations
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from kvbench.configuration.conf import titled
from kvbench.metrics.aggregate import SMALLER_IS_BETTER, bounds, units
from kvbench.metrics.bootstrap import EQUAL, division, paired_interval
from kvbench.metrics.paired_comparison import EXACT, holm, sign_flip, standard_error
from kvbench.records.identity import FULL
from kvbench.report.tables.text_table import MISSING, TextTable, number
from kvbench.utils.csv_files import write_csv
from kvbench.utils.text import count

EVERY_TWO = 100  # settings of which reports compare every two, which are 4,950 pairs of some milliseconds each


def pairs(records: pd.DataFrame, metric: str, alone: str | None = None) -> pd.DataFrame:
    """One row per two settings that share samples, in order of first appearance; of `alone` and each other one if a
    setting is given.

    setting, baseline    the two; a difference is the first's score minus the second's
    difference           mean over tasks, where records name them, of the mean over the samples that both have
    low, high            its 95 % interval over units; nan where a task has a single one, or where distances do not vary
    p, p_holm            by sign flips over units, and with Holm's correction for all rows
    wins, ties, losses   samples at which `setting` is better, as good, worse
    samples, units       that both have; a unit is what was drawn independently (`metrics.aggregate.units`)
    error                the difference's standard error
    divided              how the units are divided between tasks, a `metrics.bootstrap.Division`
    score                `setting`'s mean over the same samples, and `baseline_score` the baseline's
    """
    scores, tasks, drawn = _by_sample(records, metric)
    full = set(records.loc[records["method"] == FULL, "setting"])
    rows, sums = [], []
    for setting, baseline in combinations(scores.columns, 2):
        if alone not in (None, setting, baseline):
            continue
        both = scores[[setting, baseline]].notna().all(axis=1).to_numpy()
        if not both.any():
            continue
        a, b = scores[setting].to_numpy()[both], scores[baseline].to_numpy()[both]
        differences, strata, labels = a - b, tasks[both], drawn[both]
        _, members, counts = np.unique(strata, return_inverse=True, return_counts=True)
        weights = 1 / counts[members] / len(counts)
        shares = differences / counts[members] / len(counts)
        error = standard_error(differences, strata, labels)
        of_a, of_b = (bounds(metric, full=name in full) for name in (setting, baseline))
        low, high = paired_interval(a, b, strata, labels, of_a, bounds_of_b=of_b)
        of_unit, present = (np.bincount(labels, of, drawn.max() + 1) for of in (shares, None))
        sums.append(np.where(present > 0, of_unit, np.nan))
        gains = -differences if metric in SMALLER_IS_BETTER else differences
        wins, losses = int((gains > EQUAL).sum()), int((gains < -EQUAL).sum())
        rows.append(
            {
                "setting": setting,
                "baseline": baseline,
                "difference": float(shares.sum()),
                "low": low,
                "high": high,
                "p": np.nan,
                "p_holm": np.nan,
                "wins": wins,
                "ties": len(differences) - wins - losses,
                "losses": losses,
                "samples": len(differences),
                "units": len(np.unique(labels)),
                "error": error,
                "divided": division(strata.tolist(), labels.tolist()),
                "score": float(a @ weights),
                "baseline_score": float(b @ weights),
            }
        )
    frame = pd.DataFrame(rows)
    if rows:
        frame["p"] = sign_flip(np.stack(sums, axis=1))
        frame["p_holm"] = holm(frame["p"])
    return frame


def against(every: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """The rows of `pairs` about one baseline, each as setting minus baseline; Holm's correction is for these alone."""
    if every.empty:
        return every
    first, second = (every[every[name] == baseline] for name in ("setting", "baseline"))
    turned = first.assign(
        setting=first["baseline"],
        baseline=baseline,
        difference=0 - first["difference"],
        low=0 - first["high"],
        high=0 - first["low"],
        wins=first["losses"],
        losses=first["wins"],
        score=first["baseline_score"],
        baseline_score=first["score"],
    )
    rows = pd.concat([second, turned]).sort_index(kind="stable")
    return rows.assign(p_holm=holm(rows["p"])).reset_index(drop=True)


def full_of(records: pd.DataFrame) -> str | None:
    """The setting of the uncompressed cache; None without one."""
    return next(iter(records.loc[records["method"] == FULL, "setting"]), None)


def baseline_alone(records: pd.DataFrame) -> str | None:
    """The one setting that a report compares all others with where they are more than EVERY_TWO: FullKV or the first;
    None where it compares every two."""
    if records["setting"].nunique() <= EVERY_TWO:
        return None
    return full_of(records) or str(records["setting"].iloc[0])


def alone_note(records: pd.DataFrame) -> str:
    """A note on settings that are not compared with each other; empty where every two are."""
    if (alone := baseline_alone(records)) is None:
        return ""
    settings = records["setting"].nunique()
    return (
        f"of {settings:,} settings only pairs with {titled(alone)} are given: every two are up to {EVERY_TWO} settings"
    )


def difference_table(
    compared: pd.DataFrame, metric: str, more: dict[str, list[str]] | None = None, margin: float = 0.0
) -> TextTable:
    """The rows of `against` as text, with further columns beside them; `margin` is the loss that is allowed."""
    more = more or {}
    baseline = titled(compared["baseline"].iloc[0])
    header = ["setting", "difference", "95 % interval", "p (Holm)", "wins ties losses"]
    rows = [
        [
            titled(row["setting"]),
            f"{row['difference']:+.3f}",
            MISSING if pd.isna(row["low"]) else f"{row['low']:+.3f} to {row['high']:+.3f}",
            p_text(row["p_holm"]),
            "/".join(str(row[name]) for name in ("wins", "ties", "losses")),
            *(cells[i] for cells in more.values()),
        ]
        for i, (_, row) in enumerate(compared.iterrows())
    ]
    return TextTable([*header, *more], rows, f"{metric}: difference from {baseline}", notes(compared, metric, margin))


def notes(compared: pd.DataFrame, metric: str, margin: float = 0.0) -> list[str]:
    """Notes on the columns, the number of units, and a baseline whose score is at the floor."""
    fewest, most = compared["units"].min(), compared["units"].max()
    number = f"{most:,}" if fewest == most else f"{fewest:,} to {most:,}"
    drawn = "one text or problem" if most == 1 else f"{number} texts or problems drawn independently"
    samples = count(compared["samples"].max(), "sample")
    samples = samples if compared["samples"].nunique() == 1 else f"at most {samples}"
    how = "all sign flips" if fewest <= EXACT else "random sign flips"
    how += f" up to {EXACT} units and random ones for more" * bool(fewest <= EXACT < most)
    lines = [
        f"on {samples} that both have; interval by bootstrap and p by {how}, over {drawn}; Holm's "
        f"correction is for {count(len(compared), 'comparison')}"
    ]
    unknown = compared["low"].isna()
    if (unknown & compared["error"].isna()).any():
        reason = "no interval, as a task has a single such text or problem"
        lines.append(f"{MISSING}: {reason}: give each task at least two texts, or leave task out")
    elif unknown.any():
        lines.append(f"{MISSING}: no interval, as distances do not vary")
    return lines + list(filter(None, [floor_note(compared, metric, margin)]))


def floor_note(compared: pd.DataFrame, metric: str, margin: float = 0.0) -> str:
    """A note if the baseline scores so low that no setting can be worse by more than `margin`; else empty."""
    score = compared["baseline_score"].max()
    if not at_floor(score, metric, margin):
        return ""
    return floor_words(compared["baseline"].iloc[0], score, metric, margin)


def floor_words(baseline: str, score: float, metric: str, margin: float) -> str:
    """What a baseline with this score, which is at the floor, leaves open."""
    lost = f"lose more than {margin:g}" if margin else "be worse"
    shows = "so these samples do not show that one is as good"
    return f"{titled(baseline)}'s own {metric} is {score:.3f}: no setting can {lost}, {shows}"


def at_floor(score: float, metric: str, margin: float) -> bool:
    """Whether a baseline with this mean is so low that no setting can be worse by more than `margin`."""
    return metric not in SMALLER_IS_BETTER and bool(score - bounds(metric).low <= margin + EQUAL)


def p_text(value: float) -> str:
    return "<0.001" if value < 0.001 else number(value)


def write_differences(every: pd.DataFrame, folder: Path) -> list[Path]:
    """differences.csv: any two settings, with every digit."""
    path = folder / "differences.csv"
    write_csv(every.drop(columns="divided"), path)
    return [path]


class _BySample(NamedTuple):
    scores: pd.DataFrame  # a row per sample, a column per setting
    tasks: np.ndarray  # a number for each sample's task
    drawn: np.ndarray  # a number for each sample's unit


def _by_sample(records: pd.DataFrame, metric: str) -> _BySample:
    """Scores by sample and setting, with the samples' tasks and units."""
    value = [scores.get(metric, np.nan) for scores in records["scores"]]
    frame = records.assign(value=pd.to_numeric(pd.Series(value, index=records.index)))
    scores = frame.pivot_table("value", "sample", "setting", sort=False, dropna=False)
    scores = scores.reindex(index=frame["sample"].unique(), columns=frame["setting"].unique())
    samples = frame.drop_duplicates("sample").set_index("sample")
    tasks = samples["task"] if "task" in samples else pd.Series("", index=samples.index)
    drawn = units(samples.reset_index())
    return _BySample(scores, *(pd.factorize(labels.astype(str))[0] for labels in (tasks, drawn)))
