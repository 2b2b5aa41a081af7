"""The tables of `verdicts.py`: what each side says of a type, and whether both say the same."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import pandas as pd

from kvbench.metrics.bootstrap import OF_DIFFERENCES, paired_interval
from kvbench.report.tables.agreement import EQUAL, agreements
from kvbench.report.tables.text_table import TextTable
from kvbench.runner.compare_table import compared_with
from kvbench.runner.compared_records import records_of
from kvbench.runner.conditions import of_margin
from kvbench.runner.verdicts import BROKEN, WITHIN

LLAMA, OURS = "llama_cpp", "kvbench"
NAMES = {LLAMA: "llama.cpp", OURS: "kvbench"}

Records = tuple[pd.DataFrame, str | None]  # records and the name of their score
Settings = Mapping[str, Mapping[str, str]]  # by type and side; the first type is the baseline


def compared(folders: Mapping[str, Mapping[str, Path]], settings: Settings, margins: Sequence[float]) -> pd.DataFrame:
    """A row for each model and type with both sides' figures, and whether they agree.

    folders: a folder of records for each model and side, of which the samples count that every type answered on both
    sides. `change` is llama.cpp's difference minus kvbench's on the same
    prompts, with its 95 % interval; `same_answers` of `samples` are those that both sides give.
    """
    rows = []
    for model, sides in folders.items():
        read = _of_same_samples({side: records_of([folder], None) for side, folder in sides.items()}, settings)
        figures = {side: _of_side(*records, settings, side, margins) for side, records in read.items()}
        answers = {side: _answers(*records, settings, side) for side, records in read.items()}
        baseline = next(iter(settings))
        for kind in settings:
            row: dict[str, Any] = {"model": model, "type": kind}
            for side in sides:
                row |= {f"{side}_{name}": value for name, value in figures[side].get(kind, {}).items()}
            rows.append(row | between(answers, kind, baseline))
    frame = pd.DataFrame(rows)
    for margin in margins:
        words = [frame.get(f"{side}_verdict_{margin:g}") for side in (LLAMA, OURS)]
        frame[f"agree_{margin:g}"] = [agree(*both) for both in zip(*words, strict=True)]
    return frame


def _of_same_samples(read: Mapping[str, Records], settings: Settings) -> dict[str, Records]:
    every = [
        set(records.loc[records["setting"] == labels[side], "sample"])
        for side, (records, _) in read.items()
        for labels in settings.values()
    ]
    common = set.intersection(*every)
    return {side: (records[records["sample"].isin(common)], metric) for side, (records, metric) in read.items()}


def _of_side(
    records: pd.DataFrame, metric: str | None, settings: Settings, side: str, margins: Sequence[float]
) -> dict[str, dict[str, Any]]:
    """Figures of every type: score, difference from the side's baseline, equal answers, KL and verdicts."""
    assert metric is not None, "the prompts have expected answers"
    baseline = next(iter(settings.values()))[side]
    agreed = agreements(records, baseline)
    by_setting: dict[str, dict[str, Any]] = {}
    for margin in margins:
        rows = compared_with(baseline, records, metric, agreed, margin)
        judged = of_margin(rows, metric, margin).judged
        for row in rows.to_dict("records"):
            figures = by_setting.setdefault(row["setting"], {})
            figures |= {name: row[name] for name in ("score", "difference", "low", "high", "wins", "losses", "samples")}
            figures |= {f"verdict_{margin:g}": judged[row["setting"]].verdict, f"needed_{margin:g}": row["needed"]}
            by_setting[baseline] = {"score": row["baseline_score"], "samples": row["samples"]}
    for name, of_setting in agreed.items():
        for setting, agreement in of_setting.items():
            by_setting[setting][name.replace(" answers", "")] = agreement.total if name == EQUAL else agreement.mean
    return {kind: by_setting[labels[side]] for kind, labels in settings.items() if labels[side] in by_setting}


def _answers(records: pd.DataFrame, metric: str | None, settings: Settings, side: str) -> pd.DataFrame:
    """`score` and `prediction` of each type and sample."""
    of_sample = records.assign(score=[scores[metric] for scores in records["scores"]]).set_index("sample")
    frames = {kind: of_sample[of_sample["setting"] == labels[side]] for kind, labels in settings.items()}
    return pd.concat({kind: frame[["score", "prediction"]] for kind, frame in frames.items() if len(frame)})


def between(answers: Mapping[str, pd.DataFrame], kind: str, baseline: str) -> dict[str, Any]:
    """Of one type: llama.cpp's difference from its baseline minus kvbench's, and the answers that are the same."""
    of_kind = {side: frame.loc[kind] for side, frame in answers.items() if kind in frame.index}
    if len(of_kind) < 2:
        return {}
    together = of_kind[LLAMA].join(of_kind[OURS].add_prefix(OURS), how="inner")
    same = together["prediction"].str.strip() == together[f"{OURS}prediction"].str.strip()
    figures = {"same_answers": int(same.sum()), "samples": len(together)}
    if kind == baseline:
        return figures
    lost = {side: (frame.loc[kind, "score"] - frame.loc[baseline, "score"]).dropna() for side, frame in answers.items()}
    theirs, ours = lost[LLAMA].align(lost[OURS], join="inner")
    low, high = paired_interval(theirs.to_numpy(), ours.to_numpy(), bounds=OF_DIFFERENCES)
    return figures | {"change": theirs.mean() - ours.mean(), "change_low": low, "change_high": high}


def agree(theirs: object, ours: object) -> str:
    """In words; "" where a side has no verdict."""
    if not (isinstance(theirs, str) and isinstance(ours, str)):
        return ""
    return "yes" if theirs == ours else "no" if {theirs, ours} == {WITHIN, BROKEN} else "one is undecided"


def table(frame: pd.DataFrame, margins: Sequence[float]) -> str:
    """Markdown: a table for each model with a row for each type and side."""
    judged = [f"margin {margin:g}" for margin in margins]
    header = ["keys / values", "side", "score", "difference (95 % interval)", "equal answers", "KL", *judged]
    agreed = [f"verdicts agree at {margin:g}" for margin in margins]
    of_both = ["keys / values", "llama.cpp's difference minus kvbench's", "same answer on both sides", *agreed]
    parts = []
    for model, group in frame.groupby("model", sort=False):
        rows = group.to_dict("records")
        sides = [_cells(row, side, margins) for row in rows for side in NAMES]
        both = [
            [
                row["type"],
                _interval(row, "change", "change_low", "change_high"),
                _count_of(row, "same_answers", "samples"),
                *(row[f"agree_{margin:g}"] for margin in margins),
            ]
            for row in rows
        ]
        title = f"## {model}, {group['samples'].max():.0f} prompts"
        parts += [TextTable(header, sides, title).markdown(), TextTable(of_both, both).markdown()]
    return "\n".join(parts)


def _cells(row: Mapping[str, Any], side: str, margins: Sequence[float]) -> list[str]:
    figures = {name.removeprefix(f"{side}_"): value for name, value in row.items() if name.startswith(f"{side}_")}
    kl = figures.get("kl")
    return [
        row["type"],
        NAMES[side],
        f"{figures['score']:.3f}" if pd.notna(figures.get("score")) else "",
        _interval(figures, "difference", "low", "high"),
        _count_of(figures, "equal", "samples"),
        f"{kl:.2g}" if kl is not None and pd.notna(kl) else "",
        *(word if isinstance(word := figures.get(f"verdict_{margin:g}"), str) else "" for margin in margins),
    ]


def _interval(row: Mapping[str, Any], name: str, low: str, high: str) -> str:
    if pd.isna(row.get(name, float("nan"))):
        return ""
    return f"{row[name]:+.3f} ({row[low]:+.3f} to {row[high]:+.3f})".replace("-", "−")


def _count_of(row: Mapping[str, Any], name: str, samples: str) -> str:
    return "" if pd.isna(row.get(name, float("nan"))) else f"{row[name]:.0f} of {row[samples]:.0f}"
