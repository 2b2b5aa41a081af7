"""An item's whole table: what is above it, the tables, and what a reader must know below them."""

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd

from kvbench.metrics.bootstrap import RESAMPLES
from kvbench.papers.changes import changes
from kvbench.papers.columns import ALL, Column
from kvbench.papers.experiment import Experiment
from kvbench.papers.select import Part, incomplete
from kvbench.tables.sheet import FLOORED, LOST, NOT_SIGNIFICANT, NOTHING, Sheet
from kvbench.utils.text import count

FEW = 10  # samples of a task below which a bootstrap interval is too narrow to go by


@dataclass(frozen=True)
class Report:
    """`legend` explains the marks; `footnotes` are numbered from 1; `chosen` is what the paper leaves open."""

    title: str
    above: list[str]
    sheets: list[Sheet]
    legend: list[str]
    footnotes: list[str]
    chosen: list[str]
    runs: list[str]


def report(
    experiment: Experiment,
    parts: Sequence[Part],
    missing: Sequence[str],
    columns: Sequence[Column],
    cells: pd.DataFrame,
    sheets: list[Sheet],
    footnotes: list[str],
) -> Report:
    """`missing` are the models without records."""
    about = experiment.about[0].upper() + experiment.about[1:]
    above = [f"{about}.", *changed(parts), f"Question {parts[0].cfg['question']} when compressing."]
    above += by_model({part.model: list(samples(part, columns)) for part in parts})
    above += [f"No records of {model}." for model in missing]
    return Report(
        f"{experiment.paper} {experiment.item}",
        above,
        sheets,
        list(legend(columns, cells, sheets)),
        footnotes,
        list(experiment.chosen),
        [provenance(part) for part in parts],
    )


def changed(parts: Sequence[Part]) -> Iterator[str]:
    """What was run otherwise than the paper did."""
    told = {}
    for part in parts:
        words = zip(("Scaled down", "Changed"), changes(part.cfg), strict=True)
        told[part.model] = [f"{what}: {'; '.join(said)}." for what, said in words if said]
    return by_model(told, everywhere="")


def by_model(told: Mapping[str, Sequence[str]], everywhere: str | None = None) -> Iterator[str]:
    """Each line once, after the models that it holds for; after `everywhere` where that is all of them."""
    models: defaultdict[str, list[str]] = defaultdict(list)
    for model, lines in told.items():
        for line in lines:
            models[line].append(model)
    for line, of in models.items():
        whose = f"{', '.join(of)}: " if everywhere is None or len(of) < len(told) else everywhere
        yield f"{whose}{line}"


def samples(part: Part, columns: Sequence[Column]) -> Iterator[str]:
    """How many samples of which task the table is of, and which settings have fewer."""
    by_task = part.records.groupby("task", sort=False)["sample"].nunique()
    tasks = list(dict.fromkeys(task for column in columns for task in column.every_task))
    tasks = [task for task in (by_task.index if ALL in tasks or not tasks else tasks) if task in by_task.index]
    alike: dict[int, list[str]] = {}
    for task in tasks:
        alike.setdefault(int(by_task[task]), []).append(task)
    each = "; ".join(f"{n:,}{' each' * (len(of) > 1)} of {', '.join(of)}" for n, of in alike.items())
    yield f"{count(sum(by_task[task] for task in tasks), 'sample')}: {each}."
    fewer = [f"{setting.label} {n:,}" for setting, n, _ in incomplete(part)]
    if fewer:
        most = max(most for *_, most in incomplete(part))
        yield f"not all records are there: {', '.join(fewer)} of {count(most, 'sample')}."


def legend(columns: Sequence[Column], cells: pd.DataFrame, sheets: Sequence[Sheet]) -> Iterator[str]:
    yield "r: reserve ratio by SpindleKV's formula 15; r_bytes: stored bytes over FullKV's; means over samples."
    if any(column.measure is None for column in columns):
        average = ", an average that of the printed columns" if any(column.of for column in columns) else ""
        yield f"A score is 100 × the mean over a task's samples, rounded{average}."
    if any(column.name == "kv_compression" for column in columns):
        yield "KV cache: 1 / r_bytes."
    if any(column.name == "layer_compression" for column in columns):
        yield "layers: all layers over those that keep every token; of two that share one store, one counts."
    drawn = [cell for sheet in sheets for row in sheet.rows() for cell in row]
    if any(cell.best for cell in drawn):
        second = " and underlined the second" if any(cell.second for cell in drawn) else ""
        yield f"Bold is the best{second} of a section, which has one budget or ratio; FullKV stands aside."
    if any(NOT_SIGNIFICANT in cell.marks for cell in drawn):
        yield (
            f"{NOT_SIGNIFICANT} the difference to FullKV is not significant: its 95 % interval, by paired bootstrap "
            f"over the samples that both have ({RESAMPLES:,} draws, within tasks), contains 0 or cannot be told."
        )
    if cells["versus_full"].notna().any():
        fewest = cells.loc[cells["versus_full"].notna(), "fewest"].min()
        if fewest < FEW:
            yield f"Intervals over so few samples ({fewest:.0f} of a task) are too narrow to go by."
    if cells["floored"].any():
        yield f"{FLOORED} less was asked for than the method can go down to; r is what it came to."
    if cells["ours"].isna().any():
        yield f"{NOTHING}: no records, or no figure."
    if (cells["figure"].notna() & (cells["printed"] == "")).any():
        yield f"{LOST}: printed, but not legible in the text at hand."


def provenance(part: Part) -> str:
    """One line on the runs behind a model's rows, values that differ between them side by side."""

    def told(name: str, cut: Callable[[str], str] = str) -> str:
        return " | ".join(sorted({cut(value) for value in part.records[name].dropna()})) or "unknown"

    return (
        f"{part.model} in {told('dtype', lambda dtype: dtype.removeprefix('torch.'))} on {told('processor')}; "
        f"kvbench {told('kvbench')}, git {told('git', head)}, torch {told('torch')}, transformers "
        f"{told('transformers')}; weights {told('weights', head)}, data {told('data_sha256', head)}; "
        f"{told('folder', lambda folder: Path(folder).name)}"
    )


def head(digits: str) -> str:
    """The first digits of a hash, and whether the checkout had changes."""
    return digits[:10] + ("-dirty" if digits.endswith("-dirty") else "")
