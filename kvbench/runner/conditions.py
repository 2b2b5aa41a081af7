"""The conditions that the options of `kvbench compare` set: a margin of the score, and limits of the agreement."""

from argparse import Namespace
from collections.abc import Mapping

import pandas as pd

from kvbench.errors import UserError
from kvbench.metrics.aggregate import DIVERGENCES
from kvbench.metrics.bootstrap import equal_pairs_needed
from kvbench.metrics.paired_comparison import verdict
from kvbench.report.tables.agreement import EQUAL, Agreement, Agreements
from kvbench.report.tables.differences import at_floor
from kvbench.runner.gate import Condition, Judged
from kvbench.runner.verdicts import UNDECIDED, WITHIN
from kvbench.utils.text import count


def asked(options: Namespace, compared: pd.DataFrame, metric: str | None, agreed: Agreements) -> list[Condition]:
    """A condition for each option that is set. Raises UserError if no record has its score or measure."""
    conditions = []
    if options.margin is not None:
        if metric is None:
            raise UserError("--margin is about a score, and the runs share no metric whose larger values are better")
        conditions.append(of_margin(compared, metric, options.margin))
    divergence = next((name for name in DIVERGENCES if name in agreed), DIVERGENCES[0])
    for option, limit, measure, condition_of in (
        ("--min-equal", options.min_equal, EQUAL, at_least),
        ("--min-top1", options.min_top1, "top1", at_least),
        ("--max-kl", options.max_kl, divergence, at_most),
    ):
        if limit is not None:
            if measure not in agreed:
                raise UserError(
                    f"{option}: no record has {measure} from the baseline (distance=true measures distances)"
                )
            conditions.append(condition_of(measure, limit, agreed[measure]))
    return conditions


def of_margin(compared: pd.DataFrame, metric: str, margin: float) -> Condition:
    """A score at most `margin` below the baseline's. `compared` is `against`'s frame with the column `needed`."""
    judged = {row["setting"]: _by_score(row, metric, margin) for _, row in compared.iterrows()}
    return Condition(f"the margin of {margin:g}", judged)


def _by_score(row: pd.Series, metric: str, margin: float) -> Judged:
    units = count(row["units"], "unit")
    if at_floor(row["baseline_score"], metric, margin):
        floor = f"whose baseline has a {metric} of {row['baseline_score']:.3f}"
        return Judged(UNDECIDED, f"{floor}: nothing can lose more than {margin:g}")
    decided = verdict(row["low"], row["high"], margin)
    if decided != UNDECIDED:
        return Judged(decided)
    if row["low"] != row["low"]:
        return Judged(decided, f"whose difference over {units} has no interval")
    if row["needed"] is not None and row["needed"] > row["units"]:  # no number of units shows a margin of 0
        return Judged(decided, f"over {units}: a margin of {margin:g} takes about {row['needed']:,.0f}")
    difference = f"{row['difference']:+.3f}"
    return Judged(decided, f"whose difference of {difference} cannot be distinguished from -{margin:g}")


def at_least(measure: str, limit: float, agreements: Mapping[str, Agreement]) -> Condition:
    """A share of at least `limit`, which is below 1."""
    judged = {}
    for setting, agreement in agreements.items():
        decided = verdict(agreement.interval.low, agreement.interval.high, -limit)
        needed = equal_pairs_needed(1 - limit) or 0
        few = f": {limit:g} takes at least {needed:,}" * (needed > agreement.units)
        judged[setting] = Judged(decided, _near(measure, agreement, limit) + few)
    return Condition(f"the share of {measure} of {limit:g}", judged, of_answers=measure == EQUAL)


def at_most(measure: str, limit: float, agreements: Mapping[str, Agreement]) -> Condition:
    """A divergence of at most `limit`."""
    judged = {}
    for setting, agreement in agreements.items():
        decided = verdict(-agreement.interval.high, -agreement.interval.low, limit)
        # values that do not vary have no interval; a divergence of 0 throughout is the same computation
        identical = agreement.mean == 0 and agreement.units > 1
        judged[setting] = Judged(WITHIN) if identical else Judged(decided, _near(measure, agreement, limit))
    return Condition(f"the limit of {measure} of {limit:g}", judged)


def _near(measure: str, agreement: Agreement, limit: float) -> str:
    """Why an agreement is undecided."""
    units = count(agreement.units, "unit")
    if agreement.interval.low != agreement.interval.low:
        return f"whose {measure} over {units} has no interval"
    low, high = agreement.interval
    mean = f"{agreement.mean:.3g} ({low:.3g} to {high:.3g})"
    return f"whose {measure} of {mean} over {units} cannot be distinguished from {limit:g}"
