"""`kvbench.run`: a run from Python or a notebook, as a data frame of its records."""

import time
from collections.abc import Container, Iterator, Mapping, Sequence
from os import PathLike
from pathlib import Path

import pandas as pd

from kvbench.configuration import configured
from kvbench.configuration.conf import choices, flat
from kvbench.configuration.configuration import GROUPS
from kvbench.errors import UserError, unknown
from kvbench.metrics.aggregate import with_distances
from kvbench.ops.operator import use_kernels
from kvbench.records.load import load_for_command
from kvbench.runner.prerequisites import check_machine
from kvbench.runner.request import build_request
from kvbench.runner.run import load_inputs, make_records
from kvbench.runner.shards import first_of_each_task
from kvbench.runner.torchrun import group_of_environment
from kvbench.utils.console import quietly
from kvbench.utils.override_text import override_text
from kvbench.utils.overrides import LISTS
from kvbench.utils.signals import stoppable


def run(
    *,
    method: str | Sequence[str] | Mapping[str, Mapping[str, object]] | None = None,
    ratio: float | Sequence[float] | None = None,
    budget: int | Sequence[int] | None = None,
    benchmark: str | Mapping[str, Mapping[str, object]] | None = None,
    model: str | PathLike[str] | Mapping[str, Mapping[str, object]] | None = None,
    overrides: Sequence[str] = (),
    **keys: object,
) -> pd.DataFrame:
    """Make the records that `kvbench KEY=VALUE …` would make and return them, a row for each sample and setting.

    A keyword is a key of the command line: `limit=10`, `decode={"batch": 1}`, `**{"benchmark.lengths": [4096]}`. A name
    can bring its keys: `benchmark={"ruler": {"lengths": [4096]}}`. A keyword that is left out or None keeps its
    default. `overrides` are texts as on the command line.

    Records that the run's folder already has are not computed again. The frame is `kvbench.records.load`'s for the
    samples and settings of this call, with more columns: `score`, the benchmark's first metric under whatever name, in
    [0, 1] (without known answers the first distance, top1), each metric, and each measured distance from FullKV (top1,
    kl in nats per token, …). Its column `folder` names the folder with tables and figures.

    Raises UserError with the line that the command line would print.
    """
    named = {"method": method, "ratio": ratio, "budget": budget, "benchmark": benchmark, "model": model}
    keywords = {key: value for key, value in named.items() if value is not None} | keys
    if group_of_environment() is not None:
        raise UserError("kvbench.run makes records in one process: torchrun runs the command line")
    if isinstance(overrides, str) or not all(isinstance(item, str) for item in overrides):
        raise UserError(f"overrides={overrides!r} must be a list of KEY=VALUE texts")
    cfg = configured([*overrides_of(keywords), *overrides])
    started = time.perf_counter()
    check_machine(cfg)
    request = build_request(cfg)
    with stoppable(), quietly(), use_kernels(request.kernels):
        inputs = load_inputs(request)
        folder = make_records(cfg, request, inputs, started)
    records = load_for_command(folder)
    samples = {sample.id for sample in first_of_each_task(inputs[1], request.limit)}
    settings = {(setting.label, setting.parameters) for setting in request.settings}
    made_by = zip(records["setting"], records["parameters"], strict=True)
    requested = pd.Series([pair in settings for pair in made_by], index=records.index) & records["sample"].isin(samples)
    return with_scores(records[requested].reset_index(drop=True), request.benchmark.metrics, request.kind.columns)


def with_scores(
    records: pd.DataFrame, metrics: Sequence[str] = (), columns: Container[str] = frozenset()
) -> pd.DataFrame:
    """The records with a column for each score and distance, beside those of mappings; `score` is the first of
    `metrics` that they have.

    A column of one of these names that is not one of the records' own `columns` is a property of the samples, and gives
    way.
    """
    if "scores" not in records:
        return records
    merged, distances = with_distances(records)
    values = pd.DataFrame(list(merged["scores"]), index=records.index)
    first = next((name for name in (*metrics, *distances) if name in values), None)
    if first is not None and "score" not in values:
        values.insert(0, "score", values[first])
    records = records.drop(columns=[name for name in values if name in records and name not in columns])
    return records.join(values[[name for name in values if name not in records]])


def overrides_of(keywords: Mapping[str, object]) -> list[str]:
    """Keywords as the command line's overrides: names of files first, then keys."""
    names, values = [], []
    for key, value in keywords.items():
        if key in GROUPS:
            chosen, inner = names_of(key, value)
            names.append(f"{'+' if key == 'experiment' else ''}{key}={chosen}")
            values += inner
        else:
            values += leaves(key, value)
    return [*sorted(names, key=lambda text: not text.startswith("+")), *values]


def names_of(group: str, value: object) -> tuple[str, list[str]]:
    """The files that `value` names, and overrides of their keys if it is a mapping."""
    if not isinstance(value, Mapping):
        plain = plain_value(group, value)
        names = plain if isinstance(plain, list) and group in LISTS else [plain]
        if not all(isinstance(name, str) for name in names):
            raise UserError(f"{group}={value!r} must be a name{' or a list of names' if group in LISTS else ''}")
        return override_text(plain), []
    for name, its_keys in value.items():
        if name not in choices(group):
            raise unknown(group, str(name), choices(group))
        if not isinstance(its_keys, Mapping):
            raise UserError(f"{group}={value!r}: the keys of {name!r} must be a mapping")
    if group not in LISTS and len(value) != 1:
        raise UserError(f"{group}={value!r} must have one name")
    paths = {name: f"{group}.{name}" if group in LISTS else group for name in value}
    overrides = [text for name, its_keys in value.items() if its_keys for text in leaves(paths[name], its_keys)]
    return override_text([*value]) if group in LISTS else override_text(next(iter(value))), overrides


def leaves(key: str, value: object) -> Iterator[str]:
    """An override for each leaf of a mapping; other values are one override."""
    by_path = flat(value, f"{key}.") if isinstance(value, Mapping) else {key: value}
    for path, leaf in by_path.items():
        yield f"{path}={override_text(plain_value(path, leaf))}"


def plain_value(key: str, value: object) -> object:
    """A value in JSON's types. Raises UserError for a value that no configuration can have."""
    if isinstance(value, PathLike):
        return str(Path(value).absolute())
    if hasattr(value, "tolist"):  # a numpy number or array
        value = value.tolist()
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [plain_value(key, item) for item in value]
    if isinstance(value, Mapping):
        return {str(name): plain_value(key, item) for name, item in value.items()}
    if value is not None and not isinstance(value, str | bool | int | float):
        raise UserError(f"{key}={value!r} must be a text, a number, true or false, or a list or mapping of those")
    return value
