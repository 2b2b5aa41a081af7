"""What `kvbench compare` prints: a row per setting beside the baseline."""

from collections.abc import Mapping

import pandas as pd

from kvbench.configuration.conf import titled
from kvbench.errors import UserError
from kvbench.metrics.aggregate import bounds
from kvbench.metrics.paired_comparison import units_for_margin, units_needed
from kvbench.report.tables.agreement import Agreements, cells
from kvbench.report.tables.differences import against, difference_table, pairs
from kvbench.report.tables.text_table import MISSING, TextTable


def compared_with(
    baseline: str, records: pd.DataFrame, metric: str | None, agreed: Agreements, margin: float | None
) -> pd.DataFrame:
    """`against`'s rows with `needed`, the units that each takes. Without a metric, `setting` alone, of those with
    answers to compare. Raises UserError where nothing can be compared.
    """
    if metric is None:
        if not agreed:
            raise UserError("the runs share no metric whose larger values are better, and no answers to compare")
        names = dict.fromkeys(name for of_setting in agreed.values() for name in of_setting)
        return pd.DataFrame({"setting": list(names)})
    compared = against(pairs(records, metric, baseline), baseline)
    if compared.empty:
        raise UserError(f"no other setting has a sample of {baseline!r}")
    if margin is None:
        measured = zip(compared["error"], compared["units"], compared["difference"], strict=True)
        return compared.assign(needed=[units_needed(*row) for row in measured])
    limits = bounds(metric)
    divided = zip(compared["error"], compared["units"], compared["divided"], strict=True)
    return compared.assign(needed=[units_for_margin(error, units, margin, limits, of) for error, units, of in divided])


def table(
    compared: pd.DataFrame,
    metric: str | None,
    baseline: str,
    agreed: Agreements,
    verdicts: Mapping[str, str],
    margin: float | None,
) -> TextTable:
    """Differences of scores, agreement of answers, the units needed, and verdicts if there are any."""
    names = compared["setting"].tolist()
    columns = cells(agreed, names)
    if metric is not None:
        what = "units needed" if margin is None else f"units for {margin:g}"
        columns[what] = [MISSING if units != units else f"{units:,.0f}" for units in compared["needed"].astype(float)]
    if verdicts:
        columns["verdict"] = [verdicts[name] for name in names]
    if metric is not None:
        return difference_table(compared, metric, columns, margin or 0.0)
    rows = [[titled(name), *texts] for name, *texts in zip(names, *columns.values(), strict=True)]
    return TextTable(["setting", *columns], rows, f"answers beside those of {titled(baseline)}")
