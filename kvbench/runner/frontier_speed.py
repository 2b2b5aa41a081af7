"""Decoding speed beside a frontier, from records of `benchmark=speed` for the same model and settings."""

from typing import Any

import pandas as pd

from kvbench.benchmarks.speed import ALIKE
from kvbench.errors import UserError
from kvbench.records.load import load_for_command
from kvbench.report.tables.speed_table import speeds
from kvbench.utils.text import count

SETTING = ["setting", "parameters"]
SAME = ["model", "weights", "dtype"]  # columns of records whose speed and scores belong to one model


def speed_records(folder: str, model: str) -> pd.DataFrame:
    """The speed records of a model below a folder. Raises UserError if there are none."""
    records = load_for_command(folder)
    records = records[(records["kind"] == "speed") & (records["model"] == model)]
    if records.empty:
        raise UserError(f"speed={folder} holds no records of benchmark=speed for model {model!r}")
    return records


def decoding(records: pd.DataFrame, scored: pd.DataFrame) -> tuple[pd.DataFrame, str] | None:
    """The speeds of the settings in `scored` (see `speeds`) at one place and on one machine, which a text names.

    The place has the most of these settings, then a prompt nearest to the mean of the scored prompts, then the smallest
    batch. None: `records` has no speed of these settings and this model.
    """
    records = records[records["kind"] == "speed"].merge(scored[SETTING].drop_duplicates(), on=SETTING)
    records = records[(records[SAME].fillna("") == scored.iloc[0][SAME].fillna("")).all(axis=1)]
    if records.empty or not (fits := records["fits"].astype(bool)).any():
        return None
    frame, prompt = speeds(records[fits]), scored["prompt_tokens"].mean()

    def rank(place: tuple[Any, ...]) -> tuple[Any, ...]:
        length, _, batch, *_ = place
        return (
            -groups[place]["setting"].nunique(),
            abs(length - prompt),
            float(batch) if isinstance(batch, int) else 1e9,
        )

    groups = dict(list(frame.groupby(ALIKE, sort=False, dropna=False)))
    best = length, new_tokens, batch, machine, threads, *_, engine = min(groups, key=rank)
    graph = ", as a CUDA graph" if engine == "graph" else ""
    place = f"{new_tokens} tokens after {length:,}, batch {batch}, {machine}, {count(threads, 'thread')}{graph}"
    return groups[best].drop_duplicates("setting"), f"decoding: {place}"
