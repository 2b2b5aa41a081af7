"""`kvbench frontier`: the fewest bytes at which each method keeps a share of FullKV's quality."""

import os
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path

import pandas as pd

from kvbench.config import composed
from kvbench.errors import UserError, unknown
from kvbench.evaluation.settings import Setting, build_settings
from kvbench.figures.frontier import frontier_figure
from kvbench.figures.style import save
from kvbench.metrics.aggregate import DISTANCES, with_distances
from kvbench.metrics.frontier import Frontier, Point, frontier, point, refined
from kvbench.papers.captions import caption
from kvbench.papers.command_line import split
from kvbench.records import load
from kvbench.records.store import RECORDS
from kvbench.run.run import run
from kvbench.tables.frontier_table import frontier_table, recommendation, write_frontier
from kvbench.utils.console import out, print_line, quietly, warn
from kvbench.utils.signals import stoppable
from kvbench.utils.text import count

HELP = """\
kvbench frontier: the fewest bytes at which each method keeps a share of FullKV's quality

  kvbench frontier [OVERRIDES] [quality=0.95] [measure=NAME] [passes=3]

  OVERRIDES      those of kvbench: method=[snapkv,h2o] model=llama3-8b benchmark=jsonl benchmark.path=FILE ...
  quality=0.95   share of FullKV's mean score that must be kept
  measure=NAME   which score decides: one of the benchmark's, or top1 (agreement with FullKV's next token, which needs
                 no expected answers); the benchmark's first when not given
  passes=3       how often ratios are refined after the first pass over 1/2, 1/4, ... 1/64

Ratios are chosen here, so ratio= and budget= are not. All settings of a pass share each prompt's prefill, and all
records lie in one run's folder, from which the same command continues; frontier.md, .csv, .png and .pdf are there."""

RATIOS = [1 / 2, 1 / 4, 1 / 8, 1 / 16, 1 / 32, 1 / 64]
LITTLE = 0.1  # of a score in [0, 1]: below it FullKV's own answers say little


def main(arguments: Sequence[str]) -> None:
    if {"--help", "-h"} & set(arguments):
        print_line(HELP)
        return
    own, overrides = own_arguments(arguments)
    quality, passes = share(own.get("quality", "0.95")), whole(own.get("passes", "3"))
    sys.path.append(os.getcwd())  # where metrics and methods of one's own are found
    cfg = composed(split(overrides)[0])
    if cfg["ratio"] is not None or cfg["budget"] is not None:
        raise UserError("kvbench frontier chooses the ratios: leave out ratio= and budget=")
    if own.get("measure") in DISTANCES and cfg["distance"] == "auto":
        cfg["distance"] = True
    names = methods(cfg)
    with stoppable():
        folder, scored = search(cfg, names, quality, own.get("measure"), passes)
    report(folder, scored, quality)


def own_arguments(arguments: Sequence[str]) -> tuple[dict[str, str], list[str]]:
    """The arguments of this command and the configuration's overrides."""
    parted = [(key, value, argument) for argument in arguments for key, _, value in [argument.partition("=")]]
    own = {key: value for key, value, _ in parted if key in ("quality", "measure", "passes")}
    return own, [argument for key, _, argument in parted if key not in own]


def share(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value <= 1:
        raise UserError(f"quality={text} must be a number above 0 and at most 1")
    return value


def whole(text: str) -> int:
    if not text.isdigit():
        raise UserError(f"passes={text} must be an integer of at least 0")
    return int(text)


def methods(cfg: Mapping) -> list[str]:
    """The methods to search with; FullKV is added to the configuration where it is missing."""
    if cfg["method"].get("_target_"):
        raise UserError("kvbench frontier takes methods by name: give yours a YAML file (docs/adding-a-method.md)")
    names = [name for name, node in cfg["method"].items() if isinstance(node, Mapping) and name != "full"]
    if not names:
        raise UserError("kvbench frontier compares methods with FullKV: method=NAME or 'method=[NAME,NAME]'")
    if "full" not in cfg["method"]:
        cfg["method"]["full"] = composed(["method=[full]"])["method"]["full"]
    return names


@dataclass(frozen=True)
class Scored:
    """The frontiers of a run's methods, and what they are of."""

    frontiers: dict[str, Frontier]  # by method
    records: pd.DataFrame  # of FullKV and the settings tried, on the same samples
    measure: str
    full: float  # FullKV's score: mean over tasks of their means


def search(cfg: dict, names: Sequence[str], quality: float, measure: str | None, passes: int) -> tuple[Path, Scored]:
    """Run the methods at ratios that close in on their frontiers: the run's folder, and what was found."""
    ratios: dict[str, Sequence[float]] = dict.fromkeys(names, RATIOS)
    settings: dict[str, list[Setting]] = {name: [] for name in names}
    for number in range(passes + 1):
        print_line(f"pass {number + 1} of at most {passes + 1}: {', '.join(ratios)}")
        nodes = {name: at(name, cfg["method"][name], these) for name, these in ratios.items()}
        for name, node in nodes.items():
            settings[name] += build_settings({name: node}, None, None)
        with quietly():
            folder = run({**cfg, "method": {"_target_": None, "full": cfg["method"]["full"], **nodes}})
        scored = score(load(folder), cfg["method"]["full"], settings, measure, quality)
        ratios = {name: more for name in names if (more := refined(scored.frontiers[name]))}
        if not ratios:
            break
    return folder, scored


def at(name: str, node: Mapping, ratios: Sequence[float]) -> dict:
    """A method's configuration at ratios of its own; as it is where it takes none."""
    takes = build_settings({name: {**node, "ratio": None, "budget": None}}, ratios[0], None)[0].ratio is not None
    return {**node, "ratio": list(ratios)} if takes else {**node}


def score(
    records: pd.DataFrame, full: Mapping, settings: Mapping[str, Sequence[Setting]], measure: str | None, quality: float
) -> Scored:
    """The frontiers of the settings tried, over the samples that all of them have."""
    records, distances = with_distances(records)
    (baseline,) = build_settings({"full": full}, None, None)
    wanted = {(one.label, one.parameters) for one in [baseline, *chain(*settings.values())]}
    records = records[[pair in wanted for pair in zip(records["setting"], records["parameters"], strict=True)]]
    measure = chosen(measure, records, distances)
    values = records.assign(value=[scores.get(measure) for scores in records["scores"]]).dropna(subset=["value"])
    complete = values.groupby("sample")["setting"].nunique() == len(wanted)
    values = values[values["sample"].map(complete)].sort_values("sample", kind="stable")
    if values.empty:
        raise UserError(f"no sample has {measure!r} under every setting: nothing can be compared")
    if "task" not in values:
        values = values.assign(task="all")
    of = dict(list(values.groupby("setting")))
    reference = of[baseline.label]
    mean = reference.groupby("task")["value"].mean().mean()
    margin = (1 - quality) * mean
    found = {
        name: frontier([placed(one, of[one.label], reference) for one in tried], margin)
        for name, tried in settings.items()
    }
    return Scored(found, values, measure, mean)


def placed(setting: Setting, rows: pd.DataFrame, full: pd.DataFrame) -> Point:
    """A setting's records and FullKV's, both ordered by sample, as a point."""
    ratio = 1.0 if setting.ratio is None else setting.ratio
    scores = (rows["value"].tolist(), full["value"].tolist())
    floored = bool(rows["floored"].any())
    return point(setting.label, ratio, rows["r_bytes"].tolist(), *scores, rows["task"].tolist(), floored)


def chosen(measure: str | None, records: pd.DataFrame, distances: Sequence[str]) -> str:
    """The measure that decides: of which more is better. Raises UserError for one that the records do not have."""
    names = list(dict.fromkeys(name for scores in records["scores"] for name in scores))
    better = [name for name in names if name not in ("kl", "answer_loglik")]
    if measure is not None and measure not in better:
        raise unknown("measure", measure, better)
    return better[0] if measure is None else measure


def report(folder: Path, scored: Scored, quality: float) -> None:
    """Print and write the frontiers: a table, one sentence, and the figure."""
    first = scored.records.iloc[0]
    samples = count(scored.records["sample"].nunique(), "sample")
    lead = f"{scored.measure}, at least {100 * quality:g} % of FullKV's {100 * scored.full:.1f}"
    title = caption(
        "", first["benchmark"], first["model"], first["dtype"], f"question {first['question']}", samples, lead
    )
    table = frontier_table(scored.frontiers, scored.full, title)
    advice = recommendation(scored.frontiers, quality, scored.measure, samples)
    if scored.full < LITTLE:
        warn(f"FullKV's own {scored.measure} is {100 * scored.full:.1f} of 100: a share of it says little")
    written = write_frontier(scored.frontiers, scored.full, table, advice, folder)
    written += save(frontier_figure(scored.frontiers, scored.full, scored.measure, title), folder / "frontier")
    out.print(table.rich())
    out.print(advice)
    for path in written:
        print_line(f"{'figure' if path.suffix in {'.png', '.pdf'} else 'table':<8} {path}")
    print_line(f"{'records':<8} {folder / RECORDS}")
