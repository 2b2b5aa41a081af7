"""From a command line to an experiment's table, in files and on the screen."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pandas as pd

from kvbench.configuration import Experiment
from kvbench.errors import UserError, on_disk
from kvbench.papers.captions import protocol_words
from kvbench.papers.columns import columns
from kvbench.papers.command_line import configurations
from kvbench.papers.cost import cost_text
from kvbench.papers.deviations import as_published
from kvbench.papers.experiment import named_by
from kvbench.papers.published import errata, of_items, published
from kvbench.papers.records import ModelRecords, select
from kvbench.papers.runs import no_records, searched_folders
from kvbench.report.tables.paper.cells import compare
from kvbench.report.tables.paper.document import document
from kvbench.report.tables.paper.errata_marks import ErrataMarks, errata_marks
from kvbench.report.tables.paper.latex import latex
from kvbench.report.tables.paper.layout import tables
from kvbench.report.tables.paper.markdown import markdown
from kvbench.report.tables.paper.terminal import show
from kvbench.report.tables.published_table import published_tables
from kvbench.utils.console import out, print_line
from kvbench.utils.csv_files import csv_text
from kvbench.utils.files import folder_name, write_atomically


def make(overrides: Sequence[str], runs: Sequence[str] = (), folder: str | None = None) -> list[Path]:
    """Write and print the table of the experiment that `overrides` name. Returns the files written.

    `runs` are the folders to search and `folder` is the folder to write to (default: `tables` in output_dir).
    Raises UserError without records, and for several sets of records that differ in provenance.
    """
    cfgs = configurations(overrides)
    experiment = named_by(cfgs[0])
    if cfgs[0].probe or experiment.show == "speed" or not experiment.columns:
        beside = ", and each of its runs writes published.md" * (experiment.show == "speed")
        raise UserError(f"{experiment.name} has no scores ({experiment.show}): kvbench figure draws it{beside}")
    folders = searched_folders(runs, cfgs[0])
    selected = [(cfg.model.name, select(cfg, folders)) for cfg in cfgs]
    models = [of_model for _, of_model in selected if of_model is not None]
    missing = [name for name, of_model in selected if of_model is None]
    if not models:
        alone = "published=true shows the published values alone"
        raise no_records(experiment, cfgs[0], overrides, folders, alone)
    file = as_published(experiment.name, models[0].model) or models[0].cfg
    recorded = list(dict.fromkeys(task for of_model in models for task in of_model.tasks))
    shown = columns(experiment.columns, models[0].cfg.benchmark, file.benchmark, recorded)
    items = [named_by(cfg).published for cfg in cfgs]
    values = of_items(published, items)
    cells = pd.concat([compare(of_model, shown, experiment, values) for of_model in models], ignore_index=True)
    marks = errata_marks(cells, values, of_items(errata, items))
    paper = document(
        experiment, models, missing, shown, cells, tables(cells, shown, marks, experiment.ratios), marks.texts
    )
    texts = {".md": markdown(paper), ".tex": latex(paper), ".csv": _csv(cells, marks, experiment, models)}
    target = Path(folder or Path(cfgs[0].output_dir) / "tables")
    paths = _write(target, _file_name(experiment, models), texts)
    show(paper, out)
    for path in paths:
        print_line(f"{'table':<8} {path}")
    return paths


def show_published(overrides: Sequence[str]) -> None:
    """Print the published values without any record, and what the runs would cost; no file is written."""
    cfgs = configurations(overrides)
    experiment = named_by(cfgs[0])
    sentence = cost_text(cfgs)
    if experiment.published is None:
        said = f"{experiment.name}: {experiment.paper} prints no numbers in {experiment.item}"
        raise UserError(f"{said}. {sentence}" if sentence else said)
    chosen = any(override.startswith("model=") for override in overrides)
    models = [cfg.model.name for cfg in cfgs] if chosen else ()
    for table in published_tables(list(map(named_by, cfgs)), models):
        out.print(replace(table, notes=()).rich(), "")
        for note in table.notes:
            print_line(note)
    if sentence:
        print_line(sentence)


def _file_name(experiment: Experiment, models: Sequence[ModelRecords]) -> str:
    """The experiment's name; with models that are not the experiment's, so that a small run replaces no full one."""
    names = [of_model.model for of_model in models]
    words = [] if set(names) <= set(experiment.models) else names
    return folder_name("-".join([experiment.name, *words, *protocol_words(models[0].cfg)]))


def _csv(cells: pd.DataFrame, marks: ErrataMarks, experiment: Experiment, models: Sequence[ModelRecords]) -> str:
    """A row per cell with every digit; `errata` has the known errors in its published value."""
    about = {"experiment": experiment.name, "paper": experiment.paper, "item": experiment.item}
    about["question"] = models[0].cfg.question
    texts = [marks.text_of(cell) for _, cell in cells.iterrows()]
    cells = cells.drop(columns=["row", "block", "value_index", "served_bytes"]).assign(errata=texts)
    return csv_text(pd.DataFrame([about] * len(cells)).join(cells))


def _write(folder: Path, name: str, texts: dict[str, str]) -> list[Path]:
    paths = [folder / f"{name}{ending}" for ending in texts]
    with on_disk(f"write the table to {folder}"):
        for path, text in zip(paths, texts.values(), strict=True):
            write_atomically(path, text)
    return paths
