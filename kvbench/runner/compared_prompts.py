"""Whether the samples that runs share by name have the same prompts."""

from collections.abc import Iterable
from functools import cache
from pathlib import Path
from typing import NamedTuple

import pandas as pd

from kvbench.errors import UserError
from kvbench.records.samples import read_samples
from kvbench.utils.console import warn

FIELDS = ("prompt_end", "prompt_characters", "question")  # of a row of samples.jsonl


class Run(NamedTuple):
    folder: Path
    records: pd.DataFrame


def check_same_prompts(runs: Iterable[Run]) -> None:
    """Raise UserError where two runs of one model give one name to samples with other prompts.

    Between models it is a warning: texts whose length is counted in tokens differ with the tokenizer. It is one, too,
    where the data are others and a pack, which has no prompts, leaves open which samples that concerns.
    """
    first: dict[str, Run] = {}  # of each sample, the first run that has it
    prompts = cache(_prompts)  # read only where the data are others
    for run in runs:
        warned: set[Path] = set()
        for name in run.records["sample"].unique():
            before = first.setdefault(name, run)
            if before.folder in {run.folder, *warned} or _value(before, "data_sha256") == _value(run, "data_sha256"):
                continue
            known = (prompts(one.folder).get(name) for one in (before, run))
            if (said := _difference(name, before, run, *known)) is not None:
                warn(said)
                warned.add(before.folder)


def _prompts(folder: Path) -> dict[str, tuple[object, ...]]:
    """What `samples.jsonl` has of each sample's prompt, by the sample's name."""
    return {name: tuple(row[field] for field in FIELDS) for name, row in read_samples(folder).items()}


def _difference(
    name: str, before: Run, run: Run, one: tuple[object, ...] | None, other: tuple[object, ...] | None
) -> str | None:
    """What a warning says of a sample in two runs over other data; None where its prompt is the same."""
    where = f"{before.folder} and {run.folder}"
    if one is None or other is None:
        return f"{where} are over other data, and not both have the prompts: whether they share samples is not known"
    if one == other:
        return None
    if _value(before, "model") == _value(run, "model"):
        raise UserError(f"the runs are not over the same samples: {name!r} has other prompts in {where}")
    return f"{where}: prompts differ with the model, first {name!r}; samples of one name are compared all the same"


def _value(run: Run, column: str) -> object:
    return run.records[column].iloc[0] if column in run.records else None
