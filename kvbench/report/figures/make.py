"""From a command line to an experiment's figures, one set for each model."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from kvbench.configuration import Configuration, Experiment
from kvbench.errors import UserError, on_disk
from kvbench.methods.simlayerkv.method import SimLayerKV
from kvbench.papers.captions import caption, protocol_words, title
from kvbench.papers.columns import columns
from kvbench.papers.command_line import configurations
from kvbench.papers.deviations import as_published
from kvbench.papers.experiment import named_by
from kvbench.papers.records import ModelRecords, select, select_probes
from kvbench.papers.runs import no_records, searched_folders
from kvbench.records.served_bytes import name_of
from kvbench.report.figures.curve import curves
from kvbench.report.figures.curve_points import AXES, default_x, measured_points, published_points
from kvbench.report.figures.lazy_layers import lazy_maps
from kvbench.report.figures.memory import memory_figure
from kvbench.report.figures.needle_heatmap import heatmaps
from kvbench.report.figures.probes import draw_probes
from kvbench.report.figures.speed import repetitions, speed_figure
from kvbench.report.figures.style import save
from kvbench.utils.console import print_line
from kvbench.utils.files import folder_name
from kvbench.utils.text import count


def make(overrides: Sequence[str], runs: Sequence[str] = (), folder: str | None = None) -> list[Path]:
    """Draw the experiment that `overrides` name and print the names of the files written. Returns those files.

    `runs` are the folders to search and `folder` is the folder to write to (default: `figures` in output_dir).
    Raises UserError without records, for several sets of records that differ in provenance, and without data to draw.
    """
    cfgs = configurations(overrides)
    folders = searched_folders(runs, cfgs[0])
    target = Path(folder or Path(cfgs[0].output_dir) / "figures")
    written: list[Path] = []
    with on_disk(f"write figures to {target}"):
        for cfg in cfgs:
            written += (_draw_probes if cfg.probe else _draw_methods)(cfg, folders, target)
    if not written:
        raise no_records(named_by(cfgs[0]), cfgs[0], overrides, folders)
    for path in written:
        print_line(f"{'table' if path.suffix == '.csv' else 'figure':<8} {path}")
    return written


def _draw_methods(cfg: Configuration, folders: Sequence[str], target: Path) -> list[Path]:
    """The figures of one model's methods; none without records."""
    of_model = select(cfg, folders)
    if of_model is None:
        return []
    name = _file_name(of_model.cfg)
    return [path for kind, figure in drawn(of_model) for path in save(figure, target / f"{name}-{kind}")]


def _draw_probes(cfg: Configuration, folders: Sequence[str], target: Path) -> list[Path]:
    """The figures of one model's probes; none without records."""
    cfg, records = select_probes(cfg, folders)
    if records.empty:
        return []
    return draw_probes(records, target, _caption(cfg, records, "while observed"), f"{_file_name(cfg)}-")


def _file_name(cfg: Configuration) -> str:
    return folder_name("-".join([named_by(cfg).name, cfg.model.name, *protocol_words(cfg)]))


@dataclass(frozen=True)
class _Drawing:
    """The records that one model's figures show."""

    of_model: ModelRecords
    experiment: Experiment
    records: pd.DataFrame  # of the experiment's settings
    caption: str


def drawn(of_model: ModelRecords) -> Iterator[tuple[str, Figure]]:
    """Kind and figure of everything to draw for one model: the experiment's, lazy layers, and sizes of caches."""
    experiment = named_by(of_model.cfg)
    every = [of_model.records_of(setting) for setting in of_model.settings]
    records = pd.concat([records for records in every if len(records)], ignore_index=True)
    caption = "; ".join([_caption(of_model.cfg, records, "when compressing"), *_missing(of_model)])
    drawing = _Drawing(of_model, experiment, records, caption)
    extra_kinds = [] if "repeats_seconds" in records else [*["lazy_map"] * bool(_lazy(of_model)), "memory"]
    for kind in dict.fromkeys([experiment.show, *extra_kinds]):
        if kind == "table":
            continue
        if kind not in DRAWINGS:
            raise UserError(f"experiment.show={kind} is drawn from probes, but this experiment runs methods")
        yield kind, DRAWINGS[kind](drawing)


def _curve(drawing: _Drawing) -> Figure:
    of_model, experiment, caption = drawing.of_model, drawing.experiment, drawing.caption
    file = as_published(experiment.name, of_model.model) or of_model.cfg
    shown = columns(experiment.columns, of_model.cfg.benchmark, file.benchmark, of_model.tasks)
    x = experiment.x or default_x(of_model)
    published = published_points(of_model, experiment, shown, x)
    if len(published.points):
        other = "" if of_model.model in published.source else ", a different model"
        caption += f" · grey: published, {published.source}{other}"
    if published.errata:
        caption += f" · errata that concern them: {len(published.errata)} (results/published/errata.csv)"
    ratio = experiment.ratios[-1]
    measured = measured_points(of_model, shown, x, ratio)
    words = AXES | {"r_bytes": AXES[name_of(drawing.records)]}  # the points of r_bytes are served bytes
    return curves(measured, published.points, words.get(x, x), published.source, caption, words[ratio])


def _heatmap(drawing: _Drawing) -> Figure:
    _need(drawing.records, ["length", "depth"], "benchmark=niah or another needle grid", "heatmap")
    return heatmaps(drawing.records, next(iter(drawing.records["scores"].iloc[0])), drawing.caption)


def _lazy_map(drawing: _Drawing) -> Figure:
    lazy = _lazy(drawing.of_model)
    if not lazy:
        raise UserError("lazy_map shows lazy layers: no setting here is SimLayerKV's over FullKV")
    return lazy_maps(drawing.records[drawing.records["setting_key"].isin(lazy)], drawing.caption)


def _speed(drawing: _Drawing) -> Figure:
    _need(drawing.records, ["repeats_seconds"], "benchmark=speed", "speed")
    if not drawing.records["fits"].any():
        raise UserError("nothing to draw: no batch of these runs fits into the memory")
    return speed_figure(repetitions(drawing.records), drawing.caption)


# experiment.show -> its figure, from records of methods
DRAWINGS: dict[str, Callable[[_Drawing], Figure]] = {
    "curve": _curve,
    "heatmap": _heatmap,
    "lazy_map": _lazy_map,
    "speed": _speed,
    "memory": lambda drawing: memory_figure(drawing.records, drawing.caption),
}


def _lazy(of_model: ModelRecords) -> set[str]:
    """The keys of the settings whose layers are either lazy or whole."""
    return {
        setting.key
        for setting in of_model.settings
        if isinstance(setting.method, SimLayerKV) and not setting.method.others.takes_budget
    }


def _need(records: pd.DataFrame, names: Sequence[str], source: str, kind: str) -> None:
    if lacking := [name for name in names if name not in records]:
        raise UserError(f"experiment.show={kind} needs records of {source}: these have no {', '.join(lacking)}")


def _caption(cfg: Configuration, records: pd.DataFrame, when: str) -> str:
    first, samples = records.iloc[0], records["sample"].nunique()
    tasks = records["task"].nunique() if "task" in records else 1
    question = f"question {first['question']} {when}"
    amount = count(samples, "sample") + (f" of {tasks} tasks" if tasks > 1 else "")
    return caption(title(cfg), first["benchmark"], first["model"], str(first["dtype"]), question, amount)


def _missing(of_model: ModelRecords) -> list[str]:
    """The settings that have fewer samples than others."""
    fewer = [f"{setting.label} {n:,} of {most:,}" for setting, n, most in of_model.incomplete()]
    return [f"some records are missing: {', '.join(fewer)}"] if fewer else []
