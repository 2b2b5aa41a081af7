"""The search behind `kvbench frontier`: runs at ratios that close in on each method's frontier, and their report."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import chain
from pathlib import Path
from typing import Any

import pandas as pd

from kvbench.configuration import Configuration, ModelSpec
from kvbench.errors import UserError, unknown
from kvbench.evaluation.settings import Setting, build_settings, is_full
from kvbench.metrics.aggregate import AGREEMENT, DISTANCES, SMALLER_IS_BETTER, bounds, tasks_of, units, with_distances
from kvbench.metrics.frontier import Frontier, Point, frontier, point, refined
from kvbench.ops.operator import use_kernels
from kvbench.papers.captions import caption
from kvbench.records.identity import FULL
from kvbench.records.load import load_for_command
from kvbench.records.served_bytes import name_of, note_of, served_bytes
from kvbench.report.tables.frontier_table import frontier_table, recommendation, replaced, write_frontier
from kvbench.report.tables.run_table import has_windows
from kvbench.runner import run_figures
from kvbench.runner.frontier_speed import decoding
from kvbench.runner.outputs import model_name, print_paths
from kvbench.runner.request import build_request
from kvbench.runner.run import load_inputs, make_records
from kvbench.utils.console import out, print_line, quietly, warn
from kvbench.utils.text import count

RATIOS = [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64]
LITTLE = 0.1  # a score in [0, 1] below which FullKV's own answers say little


@dataclass(frozen=True)
class Scored:
    """The frontiers of a run's methods, and the records behind them."""

    frontiers: dict[str, Frontier]  # by method
    records: pd.DataFrame  # of FullKV and the settings tried, on the same samples
    measure: str
    full: float  # FullKV's score: mean over tasks of their means


def search(
    cfg: Configuration, names: Sequence[str], quality: float, measure: str | None, passes: int
) -> tuple[Path, Scored]:
    """Run the methods at ratios that close in on their frontiers. Returns the run's folder and the frontiers."""
    if measure in DISTANCES and cfg.distance == "auto":
        cfg = cfg.changed(distance=True)
    (baseline,) = build_settings({FULL: cfg.method[FULL]}, None, None)
    if not is_full(baseline):
        raise UserError(f"method.full={baseline.parameters} is not FullKV, with which kvbench frontier compares")
    ratios: dict[str, Sequence[float]] = dict.fromkeys(names, RATIOS)
    settings: dict[str, list[Setting]] = {name: [] for name in names}
    run_pass = passes_over_one_model(measure)
    for number in range(passes + 1):
        print_line(f"pass {number + 1} of at most {passes + 1}: {', '.join(ratios)}")
        nodes = {name: at(name, cfg.method[name], values) for name, values in ratios.items()}
        for name, node in nodes.items():
            settings[name] += build_settings({name: node}, None, None, cfg.decode.compress)
        method = {"_target_": None, FULL: cfg.method[FULL], **nodes}
        folder = run_pass(cfg.changed(method=method), f"pass {number + 1}")
        scored = score(load_for_command(folder), baseline, settings, measure, quality)
        ratios = {name: more for name in names if (more := refined(scored.frontiers[name]))}
        if not ratios:
            break
    return folder, scored


def passes_over_one_model(measure: str | None) -> Callable[[Configuration, str], Path]:
    """A function that runs a configuration under the name of a pass. Its first call loads the model and the samples."""
    benchmark, inputs = None, None

    def run_pass(cfg: Configuration, part: str) -> Path:
        nonlocal benchmark, inputs
        started = time.perf_counter()
        request = replace(build_request(cfg), part=part)
        measures = (*request.benchmark.metrics, *AGREEMENT)
        if measure is not None and measure not in measures:
            raise unknown("measure", measure, measures)
        with use_kernels(request.kernels), quietly():
            if inputs is None:
                benchmark, inputs = request.benchmark, load_inputs(request)
            return make_records(cfg, replace(request, benchmark=benchmark), inputs, started)

    return run_pass


def at(name: str, node: Mapping[str, Any], ratios: Sequence[float]) -> dict[str, Any]:
    """A method's configuration at these ratios; unchanged if the method takes none."""
    takes = build_settings({name: {**node, "ratio": None, "budget": None}}, ratios[0], None)[0].ratio is not None
    return {**node, "ratio": list(ratios)} if takes else {**node}


def score(
    records: pd.DataFrame,
    baseline: Setting,
    settings: Mapping[str, Sequence[Setting]],
    measure: str | None,
    quality: float,
) -> Scored:
    """The frontiers of the settings tried, over the samples that all of them have."""
    records, distances = with_distances(records)
    searched = {(setting.label, setting.parameters) for setting in [baseline, *chain(*settings.values())]}
    records = records[[pair in searched for pair in zip(records["setting"], records["parameters"], strict=True)]]
    measure = chosen(measure, records, distances)
    values = records.assign(value=[scores.get(measure) for scores in records["scores"]]).dropna(subset=["value"])
    complete = values.groupby("sample")["setting"].nunique() == len(searched)
    values = values[values["sample"].map(complete)].sort_values("sample", kind="stable")
    if values.empty:
        raise UserError(f"no sample has {measure!r} under every setting: nothing can be compared")
    values = values.assign(task=tasks_of(values))
    by_setting = dict(list(values.groupby("setting")))
    reference = by_setting[baseline.label]
    mean = reference.groupby("task")["value"].mean().mean()
    margin = (1 - quality) * mean
    points = {s.label: placed(s, by_setting[s.label], reference, measure) for s in chain(*settings.values())}
    frontiers = {name: frontier([points[s.label] for s in tried], margin) for name, tried in settings.items()}
    return Scored(frontiers, values, measure, mean)


def placed(setting: Setting, rows: pd.DataFrame, full: pd.DataFrame, measure: str) -> Point:
    """A setting's records and FullKV's, both ordered by sample, as a point of a measure."""
    contexts = units(rows)
    return point(
        setting.label,
        1.0 if setting.ratio is None else setting.ratio,
        served_bytes(rows).tolist(),
        rows["value"].tolist(),
        full["value"].tolist(),
        rows["task"].tolist(),
        bool(rows["floored"].any()),
        None if contexts.is_unique else contexts.tolist(),
        bounds(measure, False),
        bounds(measure, True),
    )


def chosen(measure: str | None, records: pd.DataFrame, distances: Sequence[str]) -> str:
    """The measure that decides, of which more is better. Raises UserError for a measure that no record has."""
    names = list(dict.fromkeys(name for scores in records["scores"] for name in scores))
    better = [name for name in names if name not in SMALLER_IS_BETTER | {"answer_loglik"}]
    if measure in AGREEMENT and not distances:
        raise UserError(
            f"measure={measure}: the records were made without distance=true; another output_dir measures it"
        )
    if measure is not None and measure not in better:
        raise unknown("measure", measure, better)
    return better[0] if measure is None else measure


def report(folder: Path, scored: Scored, quality: float, model: ModelSpec, speed: pd.DataFrame | None = None) -> None:
    """Print and write the frontiers: a table, one sentence, and the figure.

    model  which made the records
    speed  records of speed; None: the records in the folder
    """
    first = scored.records.iloc[0]
    samples = count(scored.records["sample"].nunique(), "sample")
    lead = f"{scored.measure}, at least {100 * quality:g} % of FullKV's {scored.full:.3f}"
    question = f"question {first['question']}"
    title = caption("", first["benchmark"], model_name(model), first["dtype"], question, samples, lead)
    floor = scored.records["r_bytes_floor"].mean() if has_windows(scored.records) else None
    table = frontier_table(scored.frontiers, scored.full, title, floor, note_of(scored.records))
    advice = recommendation(scored.frontiers, scored.full, quality, scored.measure, samples)
    if scored.full < LITTLE:
        meaning = "a share of it means little" if scored.full else "no setting can be worse"
        warn(f"FullKV's own {scored.measure} is {scored.full:.3f}: {meaning}")
    if note := replaced(folder, title, scored.frontiers):
        warn(note)
    written = write_frontier(scored.frontiers, scored.full, table, advice, folder)
    measured = decoding(load_for_command(folder) if speed is None else speed, scored.records)
    if measured is None and speed is not None:
        warn("speed= has none of the settings that were tried, or other weights or another dtype: no panel of speed")
    speeds, conditions = measured or (None, "")
    title = " · ".join(filter(None, [title, conditions]))
    size, path = name_of(scored.records), folder / "frontier"
    written += run_figures.frontier(scored.frontiers, scored.full, scored.measure, title, speeds, size, path)
    out.print(table.rich())
    out.print(advice)
    print_paths(written, folder)
