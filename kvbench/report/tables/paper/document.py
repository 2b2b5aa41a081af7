"""An experiment's tables with the text above and below them, before any format."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from kvbench.configuration import Experiment
from kvbench.metrics.bootstrap import RESAMPLES
from kvbench.papers.columns import ALL, Column
from kvbench.papers.deviations import deviations
from kvbench.papers.records import ModelRecords
from kvbench.records.served_bytes import note_of
from kvbench.report.tables.paper.cells import FULL
from kvbench.report.tables.paper.layout import FLOORED_MARK, LOST, NOT_SIGNIFICANT, PaperTable
from kvbench.report.tables.run_table import FLOORED, MISSED, MISSED_MARK
from kvbench.report.tables.text_table import MISSING
from kvbench.utils.ratios import RATIOS
from kvbench.utils.text import count, short_hashes


@dataclass(frozen=True)
class Document:
    """`legend` explains the marks; `footnotes` are numbered from 1; `chosen` is what the paper leaves open."""

    title: str
    above: list[str]
    tables: list[PaperTable]
    legend: list[str]
    footnotes: list[str]
    chosen: list[str]
    runs: list[str]


def document(
    experiment: Experiment,
    models: Sequence[ModelRecords],
    missing: Sequence[str],
    columns: Sequence[Column],
    cells: pd.DataFrame,
    tables: list[PaperTable],
    footnotes: list[str],
) -> Document:
    """`missing` are the models without records."""
    about = experiment.about[0].upper() + experiment.about[1:]
    above = [f"{about}.", *_deviations(models), f"Question {models[0].cfg.question} when compressing."]
    above += _by_model({of_model.model: list(_samples(of_model, columns)) for of_model in models})
    above += _by_model(
        {of_model.model: [f"{note}." for note in (note_of(of_model.records),) if note] for of_model in models}
    )
    above += [f"No records of {model}." for model in missing]
    return Document(
        f"{experiment.paper} {experiment.item}",
        above,
        tables,
        list(_legend(columns, cells, tables, experiment.ratios)),
        footnotes,
        list(experiment.chosen),
        [_provenance(of_model) for of_model in models],
    )


def _deviations(models: Sequence[ModelRecords]) -> Iterator[str]:
    """How the runs deviate from the paper's."""
    lines = {}
    for of_model in models:
        pairs = zip(("Scaled down", "Changed"), deviations(of_model.cfg), strict=True)
        lines[of_model.model] = [f"{what}: {'; '.join(points)}." for what, points in pairs if points]
    return _by_model(lines, everywhere="")


def _by_model(lines: Mapping[str, Sequence[str]], everywhere: str | None = None) -> Iterator[str]:
    """Each line once, after the names of its models; after `everywhere`, where given, if that is all of them."""
    models: defaultdict[str, list[str]] = defaultdict(list)
    for model, of_model in lines.items():
        for line in of_model:
            models[line].append(model)
    for line, names in models.items():
        whose = f"{', '.join(names)}: " if everywhere is None or len(names) < len(lines) else everywhere
        yield f"{whose}{line}"


def _samples(of_model: ModelRecords, columns: Sequence[Column]) -> Iterator[str]:
    """The number of samples of each task, and the settings that have fewer."""
    by_task = of_model.records.groupby("task", sort=False)["sample"].nunique()
    tasks = list(dict.fromkeys(task for column in columns for task in column.every_task))
    tasks = [task for task in (by_task.index if ALL in tasks or not tasks else tasks) if task in by_task.index]
    alike: dict[int, list[str]] = {}
    for task in tasks:
        alike.setdefault(int(by_task[task]), []).append(task)
    each = "; ".join(f"{n:,}{' each' * (len(names) > 1)} of {', '.join(names)}" for n, names in alike.items())
    yield f"{count(sum(by_task[task] for task in tasks), 'sample')}: {each}."
    if fewer := list(of_model.incomplete()):
        most = max(most for *_, most in fewer)
        settings = ", ".join(f"{setting.label} {n:,}" for setting, n, _ in fewer)
        yield f"some records are missing: {settings} of {count(most, 'sample')}."


def _legend(
    columns: Sequence[Column], cells: pd.DataFrame, tables: Sequence[PaperTable], ratios: Sequence[str]
) -> Iterator[str]:
    """What the columns and marks mean, as far as the tables have them."""
    yield "; ".join(f"{name}: {RATIOS[name]}" for name in ratios) + "; means over samples."
    if any(column.measure is None for column in columns):
        average = ", and an average is over the printed columns" if any(column.parts for column in columns) else ""
        yield f"A score is 100 × the mean over a task's samples, rounded{average}."
    if any(column.name == "kv_compression" for column in columns):
        yield "KV cache: 1 / r_bytes."
    if any(column.name == "layer_compression" for column in columns):
        yield "layers: all layers / layers that keep every token; two that share one store count once."
    drawn = [cell for table in tables for row in table.rows() for cell in row]
    if any(cell.best for cell in drawn):
        second = " and underlined the second" if any(cell.second for cell in drawn) else ""
        each = cells[cells["block"] != FULL].groupby(["model", "length", "block"], dropna=False)
        alike = (each[["ratio", "budget"]].nunique(dropna=False) == 1).all(axis=None)
        one = "one budget or ratio" if alike else "each method's budget or ratio of one rank in its list"
        floored = " and floored settings are" if cells["floored"].any() else " is"
        yield f"Bold is the best{second} of a section, which has {one}; FullKV{floored} not ranked."
    if any(NOT_SIGNIFICANT in cell.marks for cell in drawn):
        yield (
            f"{NOT_SIGNIFICANT} the difference to FullKV is not significant: its 95 % interval, by paired bootstrap "
            f"over what was drawn independently ({RESAMPLES:,} draws, within tasks), contains 0 or is unknown."
        )
    at_zero = cells[(cells["block"] == FULL) & (cells["mean"] == 0)]
    for model, rows in at_zero.groupby("model", sort=False):
        names = ", ".join(dict.fromkeys(rows["column"]))
        yield f"{model} scores 0 with FullKV in {names}: no setting can be worse there."
    if cells["floored"].any():
        yield f"{FLOORED_MARK} {FLOORED}."
    if cells["target_missed"].any():
        yield f"{MISSED_MARK} {MISSED}."
    if cells["ours"].isna().any():
        yield f"{MISSING}: no records, or no published value."
    if (cells["value_index"].notna() & (cells["printed"] == "")).any():
        yield f"{LOST}: printed, but illegible in the copy that was used."


def _provenance(of_model: ModelRecords) -> str:
    """One line on the runs behind a model's rows; values that differ between them are separated by bars."""

    def values(name: str, shown: Callable[[str], str] = short_hashes) -> str:
        return " | ".join(sorted({shown(value) for value in of_model.records[name].dropna()})) or "unknown"

    return (
        f"{of_model.model} in {values('dtype', lambda dtype: dtype.removeprefix('torch.'))} on {values('processor')}; "
        f"kvbench {values('kvbench')}, git {values('git')}, torch {values('torch')}, transformers "
        f"{values('transformers')}; weights {values('weights')}, data {values('data_sha256')}; "
        f"{values('folder', lambda folder: Path(folder).name)}"
    )
