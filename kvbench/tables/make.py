"""From a command line to an item's table, on the screen and in files."""

from collections.abc import Sequence
from pathlib import Path

import pandas as pd

from kvbench.errors import UserError, on_disk
from kvbench.papers.changes import as_published
from kvbench.papers.columns import columns
from kvbench.papers.compose import configurations
from kvbench.papers.experiment import Experiment
from kvbench.papers.published import COLUMNS, published
from kvbench.papers.select import Part, nothing, searched, select, tell
from kvbench.tables.compare import compare
from kvbench.tables.footnotes import Marks, place
from kvbench.tables.latex import latex
from kvbench.tables.markdown import markdown
from kvbench.tables.paper import report
from kvbench.tables.sheet import sheets
from kvbench.tables.terminal import show
from kvbench.utils.console import out, print_line
from kvbench.utils.files import replacing

NO_FIGURES = pd.DataFrame(columns=[*COLUMNS, "printed"])


def make(overrides: Sequence[str], runs: Sequence[str] = (), folder: str | None = None) -> list[Path]:
    """Print the table of the experiment that `overrides` name and write it; the files written.

    `runs` are the folders to look in and `folder` is where to write; the configuration's output_dir decides where
    they are not given. Raises UserError where there are no records, or no one set of them.
    """
    cfgs = configurations(overrides)
    experiment = Experiment.of(cfgs[0])
    if cfgs[0]["probe"] or not experiment.columns:
        raise UserError(f"{experiment.name} has no scores ({experiment.show}): kvbench figure draws it")
    runs = searched(runs, cfgs[0])
    parts, missing = [], []
    for cfg in cfgs:
        part = tell(*select(cfg, runs))
        missing.append(cfg["model"]["name"]) if part is None else parts.append(part)
    if not parts:
        raise UserError(nothing(experiment, cfgs[0], overrides, runs))
    file = as_published(experiment.name, parts[0].model) or parts[0].cfg
    shown = columns(experiment.columns, parts[0].cfg["benchmark"], file["benchmark"])
    figures = published(experiment.published) if experiment.published else NO_FIGURES
    cells = pd.concat([compare(part, shown, experiment, figures) for part in parts], ignore_index=True)
    marks = place(cells, figures, experiment.published)
    made = report(experiment, parts, missing, shown, cells, sheets(cells, shown, marks), marks.texts)
    show(made, out)
    name = file_name(experiment, parts)
    texts = {".md": markdown(made), ".tex": latex(made), ".csv": csv(cells, marks, experiment, parts)}
    return write(Path(folder or Path(cfgs[0]["output_dir"]) / "tables"), name, texts)


def file_name(experiment: Experiment, parts: Sequence[Part]) -> str:
    """The experiment's; with the models where they are others, so that a small run overwrites no full one."""
    models = [part.model for part in parts]
    words = [] if set(models) <= set(experiment.models) else models
    words += ["hidden"] * (parts[0].cfg["question"] == "hidden")
    return "-".join([experiment.name, *words])


def csv(cells: pd.DataFrame, marks: Marks, experiment: Experiment, parts: Sequence[Part]) -> str:
    """A row per cell with every digit; `errata` tells what is wrong in its published figure."""
    about = {"experiment": experiment.name, "paper": experiment.paper, "item": experiment.item}
    about["question"] = parts[0].cfg["question"]
    errata = [marks.told(cell) for _, cell in cells.iterrows()]
    cells = cells.drop(columns=["row", "block", "figure", "fewest"]).assign(errata=errata)
    frame = pd.DataFrame([about] * len(cells)).join(cells)
    return frame.to_csv(index=False, lineterminator="\n")


def write(folder: Path, name: str, texts: dict[str, str]) -> list[Path]:
    paths = [folder / f"{name}{ending}" for ending in texts]
    with on_disk(f"write the table to {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        for path, text in zip(paths, texts.values(), strict=True):
            with replacing(path) as work:
                work.write_text(text, encoding="utf-8")
    for path in paths:
        print_line(f"{'table':<8} {path}")
    return paths
