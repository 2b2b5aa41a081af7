"""A run's result in one or two sentences: the settings that are indistinguishable from FullKV, and those worse than it.

The intervals of the paired differences decide (`kvbench.report.tables.differences`).
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from math import ceil, inf
from typing import NamedTuple

import pandas as pd

from kvbench.configuration.conf import titled
from kvbench.metrics.aggregate import MEASURES, SMALLER_IS_BETTER, bounds, over_tasks
from kvbench.metrics.paired_comparison import units_for_margin
from kvbench.report.tables.differences import against, floor_note, full_of, pairs
from kvbench.utils.text import count

SIZE = 0.05  # the difference that further samples are counted for
NAMED = 4  # methods that a sentence names
EQUAL = 1e-9  # means that differ by less are equal: the rest is rounding
FEWEST = 6  # units of which an exact two-sided test can reach the 5 % level: 2 / 2⁶ is below it, and 2 / 2⁵ is not


def conclusion(
    records: pd.DataFrame, every: pd.DataFrame, metric: str, bytes_of: Mapping[str, float] | None = None
) -> list[str]:
    """At most two sentences on the rows `every` of `differences.pairs`; none without rows.

    Settings are compared with FullKV. If FullKV has no record, or its value is known by definition (top1), they are
    compared with the best setting. `bytes_of` orders the settings of a sentence, the smallest first.
    """
    if every.empty:
        return []
    full = full_of(records)
    if full is not None and MEASURES.get(metric, MEASURES["nll"]).of_full is None:
        compared = _ordered(against(every, full), bytes_of)
        return _beside_full(compared, metric) if len(compared) else []
    best = _best(records, every, metric, full)
    name, several = best.names[0], len(best.names) > 1
    beside = pairs(records, metric, name)  # the rows of many settings have one baseline, which may be another
    compared = _ordered(against(beside[(beside[["setting", "baseline"]] != full).all(axis=1)], name), bytes_of)
    lead = f"nearest to {titled('full')}" if full is not None else "the best"
    first = f"By {metric}, {_names(best.names)} {'are, alike,' if several else 'is'} {lead}: {best.mean:.3f}."
    ties = compared[_signs(compared, metric) == 0] if len(compared) else compared
    baseline = at_amount(name) if several else "it"
    return [first, f"{_indistinguishable(ties, baseline, metric)}."] if len(ties) else [first]


def _beside_full(compared: pd.DataFrame, metric: str) -> list[str]:
    if note := floor_note(compared, metric):
        return [f"{note}."]
    signs, full = _signs(compared, metric), titled(compared["baseline"].iloc[0])
    ties, worse, better = (compared[signs == sign] for sign in (0, -1, 1))
    lines = [f"{_indistinguishable(ties, full, metric)}."] if len(ties) else []
    differ = [(what, rows) for what, rows in (("worse", worse), ("better", better)) if len(rows)]
    differing = "; ".join(f"{what} than {full}: {_names(rows['setting'])}" for what, rows in differ)
    return [*lines, f"{differing[0].upper()}{differing[1:]}."] if differ else lines


def _signs(compared: pd.DataFrame, metric: str) -> pd.Series:
    """1 for a setting whose whole interval is better than the baseline, -1 for one that is worse, else 0."""
    sign = -1 if metric in SMALLER_IS_BETTER else 1
    return sign * ((compared["low"] > 0).astype(int) - (compared["high"] < 0).astype(int))


def _indistinguishable(ties: pd.DataFrame, baseline: str, metric: str) -> str:
    samples, units = int(ties["samples"].max()), int(ties["units"].max())
    one_by_one = samples == units
    fewest = int(ties["samples"].min())
    these = f"{fewest:,} to" if fewest < samples else "these"
    where = "one prompt" if samples == 1 else f"{these} {count(samples, 'prompt')}"
    where += "" if one_by_one else f" about {count(units, 'text')}"
    if units < FEWEST:
        sentence = f"{where[0].upper()}{where[1:]} {'is' if samples == 1 else 'are'} too few to compare by {metric}: "
        sentence += _scores(ties)
    else:
        sentence = f"{_names(ties['setting'])} cannot be distinguished from {baseline} by {metric} on {where}"
    more, at_least = more_units(ties, metric)
    if more:
        further = f"{'at least' if at_least else 'about'} {more:,} more{'' if one_by_one else ' texts'}"
        return f"{sentence}; {further} would show a difference of {SIZE:g}"
    return f"{sentence}, which would show a difference of {SIZE:g}"


def _scores(compared: pd.DataFrame) -> str:
    """The scores of the baseline and of its first settings: "FullKV 1.000, SnapKV at 0.4 0.500"."""
    first = compared.iloc[0]
    scores = {first["baseline"]: first["baseline_score"]} | dict(
        zip(compared["setting"][:NAMED], compared["score"], strict=False)
    )
    left = [count(len(compared) - NAMED, "further setting")] if len(compared) > NAMED else []
    return ", ".join([*(f"{at_amount(name)} {score:.3f}" for name, score in scores.items()), *left])


def more_units(compared: pd.DataFrame, metric: str) -> tuple[int, bool]:
    """How many further units would show a difference of SIZE in every row of `against`, and whether they are a minimum.

    With the standard error e of the paired difference over u units, a difference d takes n = u·((z₁ + z₂)·e / d)² of
    them: z₁ = 1.96 is for a two-sided test at the 5 % level, z₂ = 0.84 for a power of 0.8 (normal approximation). Equal
    pairs have e = 0, and take as many as bring the interval's end to d (`units_for_margin`). The result is n - u for
    the row that needs most, rounded up to two digits or tens. It is a minimum if a row's e is unknown: a single unit
    has no spread.
    """
    rows = zip(compared["error"], compared["units"], compared["divided"], strict=True)
    limits = bounds(metric)
    needed = [(units_for_margin(error, units, SIZE, limits, divided) or 0) - units for error, units, divided in rows]
    most = max(*needed, 0)
    step = 10 ** max(len(str(most)) - 2, 1)
    return ceil(most / step) * step, bool(compared["error"].isna().any())


class _Best(NamedTuple):
    """The best of several settings."""

    names: list[str]  # more than one where their means are equal
    mean: float


def _best(records: pd.DataFrame, every: pd.DataFrame, metric: str, full: str | None) -> _Best:
    """The settings with the best mean, as tables have it, of those in `every` other than FullKV."""
    compared = [name for name in pd.concat([every["setting"], every["baseline"]]).unique() if name != full]
    by_setting = records[records["setting"].isin(compared)].groupby("setting", sort=False)
    means = pd.Series({name: over_tasks(group, metric) for name, group in by_setting}).loc[compared]
    best = means.min() if metric in SMALLER_IS_BETTER else means.max()
    return _Best(list(means.index[(means - best).abs() < EQUAL]), float(best))


def _ordered(compared: pd.DataFrame, bytes_of: Mapping[str, float] | None) -> pd.DataFrame:
    if compared.empty or bytes_of is None:
        return compared
    return compared.sort_values(
        "setting", key=lambda names: names.map(lambda name: bytes_of.get(name, inf)), kind="stable"
    )


def _names(settings: Iterable[str]) -> str:
    """The settings in words, each method once with its ratios or budgets: "SnapKV at 0.2 and 0.4, H2O at 0.4"."""
    by_method: dict[str, list[str]] = {}
    for setting in settings:
        parts = split(setting)
        by_method.setdefault(parts.method, []).append(parts.amount)
    named = [
        f"{name} at {_and(amounts, ' and ')}" if amounts[0] else name
        for name, amounts in list(by_method.items())[:NAMED]
    ]
    left = sum(len(amounts) for amounts in list(by_method.values())[NAMED:])
    named += [count(left, "further setting")] if left else []
    return _and(named, ", and " if any(amounts[1:] for amounts in by_method.values()) else " and ")


def at_amount(setting: str) -> str:
    """ "SnapKV at 0.4" for "snapkv 0.4"."""
    return _names([setting])


class Parts(NamedTuple):
    """A setting in words."""

    method: str  # its title, with the parameters that tell it from others
    amount: str  # ratio or budget, or ""


def split(setting: str) -> Parts:
    matched = re.fullmatch(r"(.+?) (\d[\d.e-]*(?: of \w+)?)( \(.*\))?", titled(setting))
    return Parts(matched[1] + (matched[3] or ""), matched[2]) if matched else Parts(titled(setting), "")


def _and(texts: Sequence[str], last: str) -> str:
    return last.join(filter(None, [", ".join(texts[:-1]), texts[-1]]))
