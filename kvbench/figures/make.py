"""From a command line to an item's figures, one set for each model."""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import pandas as pd
from matplotlib.figure import Figure

from kvbench.errors import UserError, on_disk
from kvbench.figures.curve import curves
from kvbench.figures.heatmap import heatmaps
from kvbench.figures.lazy_map import lazy_maps
from kvbench.figures.memory import memory_figure
from kvbench.figures.points import AXES, default_x, ours, theirs
from kvbench.figures.probes import draw_probes
from kvbench.figures.speed import repetitions, speed_figure
from kvbench.figures.style import save
from kvbench.methods import SimLayerKV
from kvbench.papers.changes import as_published, title
from kvbench.papers.columns import columns
from kvbench.papers.compose import configurations
from kvbench.papers.experiment import Experiment
from kvbench.papers.select import Part, incomplete, nothing, searched, select, tell
from kvbench.papers.select_probes import select_probes
from kvbench.utils.console import out
from kvbench.utils.text import count


def make(overrides: Sequence[str], runs: Sequence[str] = (), folder: str | None = None) -> list[Path]:
    """Draw the experiment that `overrides` name; the files written.

    `runs` are the folders to look in and `folder` is where to write; the configuration's output_dir decides where
    they are not given. Raises UserError where there are no records, or no one set of them, or nothing to draw.
    """
    cfgs = configurations(overrides)
    runs = searched(runs, cfgs[0])
    target = Path(folder or Path(cfgs[0]["output_dir"]) / "figures")
    written: list[Path] = []
    with on_disk(f"write figures to {target}"):
        for cfg in cfgs:
            written += (draw_observed if cfg["probe"] else draw)(cfg, runs, target)
    if not written:
        raise UserError(nothing(Experiment.of(cfgs[0]), cfgs[0], overrides, runs))
    for path in written:
        out.print(f"{'table' if path.suffix == '.csv' else 'figure':<8} {path}", highlight=False, soft_wrap=True)
    return written


def draw(cfg: dict, runs: Sequence[str], folder: Path) -> list[Path]:
    """The figures of one model; none where it has no records."""
    part = tell(*select(cfg, runs))
    if part is None:
        return []
    name = file_name(part.cfg)
    return [path for kind, figure in drawn(part) for path in save(figure, folder / f"{name}-{kind}")]


def draw_observed(cfg: dict, runs: Sequence[str], folder: Path) -> list[Path]:
    """The same, of what probes saw."""
    cfg, records, findings = select_probes(cfg, runs)
    tell(None, findings)
    if records.empty:
        return []
    return draw_probes(records, folder, caption(cfg, records, "when looking"), f"{file_name(cfg)}-")


def file_name(cfg: Mapping) -> str:
    hidden = ["hidden"] if cfg["question"] == "hidden" else []
    return "-".join([Experiment.of(cfg).name, cfg["model"]["name"], *hidden])


def drawn(part: Part) -> Iterator[tuple[str, Figure]]:
    """Every figure of one model, by its kind: what the experiment shows, lazy layers, and what caches weigh."""
    experiment = Experiment.of(part.cfg)
    every = [part.of(setting, None) for setting in part.settings]
    records = pd.concat([of for of in every if len(of)], ignore_index=True)
    told = "; ".join([caption(part.cfg, records, "when compressing"), *missing(part)])
    others = [] if "repeats_seconds" in records else [*["lazy_map"] * bool(lazy(part)), "memory"]
    shows = dict.fromkeys([experiment.show, *others])
    for kind in shows:
        if kind == "curve":
            yield kind, curve(part, experiment, told)
        elif kind == "heatmap":
            need(records, ["length", "depth"], "benchmark=niah or another needle grid", kind)
            yield kind, heatmaps(records, next(iter(records["scores"].iloc[0])), told)
        elif kind == "lazy_map":
            if not lazy(part):
                raise UserError("lazy_map shows lazy layers: no setting here is SimLayerKV's over FullKV")
            yield kind, lazy_maps(records[records["setting_key"].isin(lazy(part))], told)
        elif kind == "speed":
            need(records, ["repeats_seconds"], "benchmark=speed", kind)
            if not records["fits"].any():
                raise UserError("nothing to draw: no batch of these runs fits into the memory")
            yield kind, speed_figure(repetitions(records), told)
        elif kind == "memory":
            yield kind, memory_figure(records, told)
        elif kind != "table":
            raise UserError(f"experiment.show={kind} is drawn from probes: this experiment runs methods")


def curve(part: Part, experiment: Experiment, told: str) -> Figure:
    file = as_published(experiment.name, part.model) or part.cfg
    shown = columns(experiment.columns, part.cfg["benchmark"], file["benchmark"])
    x = experiment.x or default_x(part)
    printed = theirs(part, experiment, shown, x)
    if len(printed.points):
        other = "" if part.model in printed.source else ", another model than ours"
        told += f" · grey: published, {printed.source}{other}"
    if printed.wrong:
        told += f" · errata that concern them: {len(printed.wrong)} (results/published/errata.csv)"
    return curves(ours(part, shown, x), printed.points, AXES.get(x, x), printed.source, told)


def lazy(part: Part) -> set[str]:
    """The keys of the settings whose layers are either lazy or whole."""
    return {
        setting.key
        for setting in part.settings
        if isinstance(setting.method, SimLayerKV) and not setting.method.others.takes_budget
    }


def need(records: pd.DataFrame, names: Sequence[str], source: str, kind: str) -> None:
    if lacking := [name for name in names if name not in records]:
        raise UserError(f"experiment.show={kind} needs records of {source}: these have no {', '.join(lacking)}")


def caption(cfg: Mapping, records: pd.DataFrame, when: str) -> str:
    """Paper and item, what was run otherwise, benchmark, model, numbers' type, protocol and samples."""
    first, samples = records.iloc[0], records["sample"].nunique()
    tasks = records["task"].nunique() if "task" in records else 1
    return " · ".join(
        [
            title(cfg),
            first["benchmark"],
            f"{first['model']} ({str(first['dtype']).removeprefix('torch.')})",
            f"question {first['question']} {when}",
            count(samples, "sample") + (f" of {tasks} tasks" if tasks > 1 else ""),
        ]
    )


def missing(part: Part) -> list[str]:
    """What has fewer samples than the rest."""
    fewer = [f"{setting.label} {have:,} of {most:,}" for setting, have, most in incomplete(part)]
    return [f"not all records are there: {', '.join(fewer)}"] if fewer else []
