"""One table of quality beside serving: what a flag costs in answers, and what it gives in latency and throughput."""

from collections.abc import Mapping, Sequence
from typing import Any

import pandas as pd

from kvbench.configuration.conf import titled
from kvbench.metrics.aggregate import DIVERGENCES, over_tasks, with_distances
from kvbench.metrics.repeats import ratio
from kvbench.report.tables.agreement import EQUAL, agreements
from kvbench.report.tables.alike_loads import same_load
from kvbench.report.tables.differences import against, at_floor, floor_words, full_of, pairs
from kvbench.report.tables.serve_table import capacity_notes, cell, columns_shown, serving
from kvbench.report.tables.text_table import MISSING, TextTable, number

OVER = ("over_baseline", "over_baseline_low", "over_baseline_high")
MARGIN = 0.02  # of a score: the loss that advice allows


def quality(records: pd.DataFrame, metric: str, baseline: str) -> pd.DataFrame:
    """A row per setting: score, its paired difference from the baseline with its interval, equal answers, and KL.

    All but counts are means over tasks, as in `pairs`, of the samples that the baseline has, too. The baseline's own
    score is of all its samples, its difference is 0, and it is compared with no answers.
    """
    compared = against(pairs(records, metric, baseline), baseline)
    differences = compared.set_index("setting") if len(compared) else pd.DataFrame()
    agreed = agreements(with_distances(records)[0], baseline)
    rows = []
    for setting, group in records.groupby("setting", sort=False):
        row: dict[str, Any] = {"setting": setting, "score": over_tasks(group, metric), "samples": len(group)}
        row |= dict.fromkeys(("difference", "low", "high"), 0.0 if setting == baseline else float("nan"))
        if setting in differences.index:
            row |= differences.loc[setting, ["score", "difference", "low", "high"]].to_dict()
        equal = agreed.get(EQUAL, {}).get(str(setting))
        row |= {"equal": equal.total if equal else float("nan"), "compared": equal.samples if equal else 0}
        kl = next((agreed[name][setting] for name in DIVERGENCES if setting in agreed.get(name, {})), None)
        rows.append(row | {"kl": kl.mean if kl else float("nan")})
    return pd.DataFrame(rows)


def served(answers: pd.DataFrame, loads: pd.DataFrame, metric: str, baseline: str) -> pd.DataFrame:
    """`serving` of the records of loads, each row with the `quality` of its setting by the records of answers; a
    setting without loads has a row of quality alone. `over_baseline` is tokens a second over the baseline's at the same
    load of the same model, prompts and machine, with `_low` and `_high` over repeats."""
    frame = serving(loads).assign(**dict.fromkeys(OVER, float("nan")))
    of_baseline = loads[loads["setting"] == baseline]
    for place, record in zip(frame.index, loads.to_dict("records"), strict=True):
        reference = same_load(record, of_baseline)
        if reference is None or record["setting"] == baseline:
            continue
        over = ratio(*(of["repeats"].get("tokens_per_s", []) for of in (record, reference)))
        if over is not None:
            frame.loc[place, [*OVER]] = [*over]
    beside = quality(answers, metric, baseline)
    order = list(dict.fromkeys([*beside["setting"], *frame["setting"]]))
    joined = beside.merge(frame, on="setting", how="outer")
    return joined.sort_values("setting", key=lambda names: names.map(order.index), kind="stable", ignore_index=True)


def first_baseline(answers: pd.DataFrame) -> str:
    """FullKV, or the first setting."""
    return full_of(answers) or str(answers["setting"].iloc[0])


def differing(answers: pd.DataFrame, loads: pd.DataFrame) -> str:
    """The first setting whose parameters are not the same in both; empty where all are."""
    for setting, group in loads.groupby("setting", sort=False):
        of_loads = set(group["parameters"].dropna())
        of_answers = set(answers.loc[answers["setting"] == setting, "parameters"])
        if of_loads and of_answers and of_loads != of_answers:
            return str(setting)
    return ""


def served_table(
    frame: pd.DataFrame, metric: str, title: str, notes: Sequence[str], wide: bool = True, repeated: bool = False
) -> TextTable:
    """The rows of `served` as text; quality stands in a setting's first row alone, unless it is to be `repeated`."""
    shown = columns_shown(frame, wide)
    columns = [metric, "difference", "equal answers", "kl", *shown, "× baseline"]
    rows, before = [], ""
    for _, row in frame.iterrows():
        first, before = row["setting"] != before, row["setting"]
        name = f"{titled(row['setting'])} · {row['load']}" if pd.notna(row["load"]) else titled(row["setting"])
        cells = _quality(row) if first or repeated else [""] * 4
        cells += [cell(row, figure) for figure in shown.values()]
        rows.append(
            [name, *cells, _interval(row if wide else {"over_baseline": row["over_baseline"]}, "over_baseline", 2)]
        )
    empty = [i for i, _ in enumerate(columns, 1) if all(row[i] in ("", MISSING) for row in rows)]
    kept = [i for i in range(len(columns) + 1) if i not in empty]
    header = ["setting · load", *columns]
    return TextTable(
        [header[i] for i in kept], [[row[i] for i in kept] for row in rows], title, notes, frame["setting"].tolist()
    )


def served_notes(frame: pd.DataFrame, metric: str, baseline: str, margin: float = MARGIN) -> list[str]:
    """What the rows of `served` were measured with, capacity, and `advice`."""
    loads = frame[frame["profile"].notna()]
    tools = ", ".join(dict.fromkeys(loads["tool"]))
    about = f"serving: {tools}; milliseconds; differences from {baseline}"
    return [about, *capacity_notes(loads), advice(frame, metric, baseline, margin)]


def _quality(row: Mapping[str, Any]) -> list[str]:
    equal = MISSING if pd.isna(row["equal"]) else f"{row['equal']:.0f} of {row['compared']:.0f}"
    ends = {"difference_low": row["low"], "difference_high": row["high"]}
    difference = _interval({**row, **ends}, "difference", 3, sign=True)
    return [_number(row["score"], 3), difference, equal, _number(row["kl"], 4)]


def _number(value: float, digits: int) -> str:
    return MISSING if pd.isna(value) else number(value, digits)


def _interval(row: Mapping[str, Any], name: str, digits: int, sign: bool = False) -> str:
    value, low, high = (row.get(key, float("nan")) for key in (name, f"{name}_low", f"{name}_high"))
    if pd.isna(value):
        return MISSING
    plus = "+" if sign and value else ""
    text = f"{value:{plus}.{digits}f}"
    return text if pd.isna(low) or low == high else f"{text} ({low:{plus}.{digits}f} to {high:{plus}.{digits}f})"


def advice(frame: pd.DataFrame, metric: str, baseline: str, margin: float) -> str:
    """Which setting answers fastest of those whose loss is at most `margin` with its whole interval; and what is not
    shown. Settings are compared at the largest load that they and the baseline have."""
    rows = best_rows(frame, baseline)
    base = rows[rows["setting"] == baseline]
    # a score less its difference is the baseline's over the same samples
    own = rows["score"] - rows["difference"]
    floor = pd.Series([at_floor(score, metric, margin) for score in own], rows.index, dtype=bool)
    others = rows[(rows["setting"] != baseline) & ~floor]
    safe = others[others["low"] >= -margin]
    undecided = others[(others["low"] < -margin) & (others["high"] >= -margin)]
    at_the_floor = rows[(rows["setting"] != baseline) & floor]
    words = []
    faster = safe[safe["over_baseline_low"] > 1]
    if len(faster):
        best = faster.sort_values("tokens_per_s").iloc[-1]
        words.append(
            f"{titled(best['setting'])} loses at most {margin:g} of {metric} and gives {best['over_baseline']:.2f} "
            f"times {titled(baseline)}'s tokens a second at {best['load']}"
        )
    elif len(safe):
        words.append(
            f"{', '.join(map(titled, safe['setting']))}: at most {margin:g} of {metric} is lost, and no tokens a "
            f"second are shown to be gained over {titled(baseline)}; what may be gained is room in the cache"
        )
    else:
        words.append(f"no setting is shown to lose at most {margin:g} of {metric}: keep {titled(baseline)}")
    if len(undecided):
        names = ", ".join(map(titled, undecided["setting"]))
        words.append(f"{names}: too few prompts to say that at most {margin:g} is lost")
    if len(at_the_floor):
        names = ", ".join(map(titled, at_the_floor["setting"]))
        words.append(f"{names}: undecided, as {floor_words(baseline, own[at_the_floor.index].max(), metric, margin)}")
    if base["tokens_per_s"].isna().all():
        words.append(f"{titled(baseline)} was not loaded, so no speed is compared")
    return "; ".join(words) + f". {NOT_SHOWN}"


NOT_SHOWN = (
    "Not shown: other prompts, longer contexts and answers, another machine, and loads beyond these; differences of a "
    "score say nothing of answers that change without losing it (see equal answers)."
)


def best_rows(frame: pd.DataFrame, baseline: str) -> pd.DataFrame:
    """The row of each setting at its most requests at once, or else at its load with most tokens a second: of the loads
    that the baseline has too, if there is one."""
    loads = set(frame.loc[frame["setting"] == baseline, "load"].dropna())
    ranked = frame.assign(
        shared=frame["load"].isin(loads),
        rank=frame["rate"].astype(float).where(frame["profile"] == "concurrent", -1.0),
    )
    ordered = ranked.sort_values(["shared", "rank", "tokens_per_s"], kind="stable", na_position="first")
    return ordered.drop_duplicates("setting", keep="last").sort_index()
