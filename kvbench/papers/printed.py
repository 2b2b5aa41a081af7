"""The published figures beside ours: which printed figure a cell is compared with, and the errata that concern it."""

import pandas as pd

from kvbench.errors import UserError
from kvbench.evaluation.settings import Setting
from kvbench.papers.columns import Column
from kvbench.papers.experiment import Experiment
from kvbench.papers.published import agree

SCORES = ("score", "fraction")  # units of what we count in 0 to 100


def of_row(
    figures: pd.DataFrame, experiment: Experiment, model: str, setting: Setting, length: int | None = None
) -> list[dict]:
    """The printed figures of one row (a setting on a model, of RULER's at a length), `figure` being their index.

    A figure at a budget or a ratio is only met by a setting at the same one.
    """
    where = experiment.rows(setting.name)
    if where is None:
        return []
    if length is not None:
        where = {**where, "setting": f"context {length}"}
    hits = figures[agree(figures, {"model": model, **where}) & _asked(figures, setting)]
    return hits.rename_axis("figure").reset_index().to_dict("records")


def of_column(row: list[dict], column: Column) -> dict | None:
    """A row's figure in a column; None where the paper prints none, or ours lacks tasks of it.

    Raises UserError where several figures of different values fit, which is a fault of the experiment's file.
    """
    hits = [one for one in row if one["column"] == column.name and (column.measure or one["unit"] in SCORES)]
    if not hits or not column.whole:
        return None
    if len({one["printed"] for one in hits}) > 1:
        raise UserError(
            f"several figures of {hits[0]['paper']}'s {hits[0]['item']} fit the method {hits[0]['method']!r} in "
            f"{column.name}: {', '.join(one['printed'] for one in hits)}; in experiment.methods, name another column "
            "of the published data that tells them apart, such as setting"
        )
    return hits[0]


def _asked(figures: pd.DataFrame, setting: Setting) -> pd.Series:
    """Figures at the setting's budget or ratio, and those at none; FullKV's and thresholds' settings have none."""
    hit = pd.Series(True, index=figures.index)
    if setting.budget is not None or setting.ratio is not None:
        budget, ratio = setting.budget or -1, setting.ratio or -1.0
        hit &= figures["budget"].isna() | (figures["budget"] == budget).fillna(False)
        hit &= figures["ratio"].isna() | ((figures["ratio"] - ratio).abs() < 1e-9)
    return hit
