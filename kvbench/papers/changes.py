"""What a run of an experiment is called: paper and item, and in words what it does otherwise than they did."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from kvbench.benchmarks.base import PLACES
from kvbench.config import flat
from kvbench.errors import UserError
from kvbench.papers.experiment import Experiment, chosen_methods, load
from kvbench.utils.text import count

# keys of a benchmark that say how large it is, and words for some that say where its data lie
SIZES = ("tasks", "max_length", "lengths", "depths", "samples")

SOURCES = {"data_dir": "data from", "haystack_dir": "haystack from", "needle_file": "needle from"}


def title(cfg: Mapping) -> str:
    """Paper and item, and in words what this run does otherwise; empty for a run of no experiment."""
    experiment = Experiment.of(cfg)
    if experiment is None:
        return ""
    smaller, other = changes(cfg)
    told = [f"scaled down: {'; '.join(smaller)}"] if smaller else []
    told += [f"changed: {'; '.join(other)}"] if other else []
    return ", ".join([f"{experiment.paper} {experiment.item}", *told])


def changes(cfg: Mapping) -> tuple[list[str], list[str]]:
    """What a run of an experiment does otherwise than its file, in words: what makes it smaller, and all else."""
    experiment, model = Experiment.of(cfg), cfg["model"]["name"]
    smaller, other = [], []
    if model not in experiment.models:
        smaller.append(f"{model} in place of {' and '.join(experiment.models)}")
    file = as_published(experiment.name, model)
    if cfg["limit"] != (file or {}).get("limit"):
        smaller.append("all samples" if cfg["limit"] is None else f"at most {count(cfg['limit'], 'sample')} of a task")
    if file is None:
        return smaller, other
    ours, theirs = ({**part["benchmark"]} for part in (cfg, file))
    if ours["_target_"] != theirs["_target_"]:
        smaller.append(f"benchmark {ours['_target_'].rpartition('.')[2]}")
    else:
        smaller += [f"{key} {_told(ours[key])}" for key in SIZES if ours.get(key) != theirs.get(key)]
        more = [key for key in ours if key not in (*SIZES, "about") and ours[key] != theirs.get(key)]
        other += [f"without {key}" if ours[key] is None else _source(key, ours[key]) for key in more]
    other += [f"{key} {_told(cfg[key])}" for key in ("question", "ratio", "budget") if cfg[key] != file[key]]
    other += _nodes(chosen_methods(cfg), chosen_methods(file))
    other += _nodes(cfg.get("probe") or {}, file["probe"])
    return smaller, other


def _source(key: str, value: object) -> str:
    """Files and folders by their names alone: where they lie on one machine says nothing."""
    return f"{SOURCES.get(key, key)} {Path(str(value)).name}" if key in PLACES else f"{key} {_told(value)}"


def _nodes(ours: Mapping, theirs: Mapping) -> list[str]:
    """Methods, or probes, that only one of two configurations has, and parameters in which they differ."""
    told = [f"without {name}" for name in theirs if name not in ours]
    told += [f"with {name}" for name in ours if name not in theirs]
    for name in ours:
        if isinstance(ours[name], Mapping) and name in theirs:
            a, b = flat(ours[name]), flat(theirs[name])
            told += [f"{name}.{key} {_told(a[key])}" for key in a if a[key] != b.get(key)]
    return told


@cache
def as_published(name: str, model: str) -> dict | None:
    """An experiment's file as it stands, for the run's model where that has a file; None for an unknown one."""
    for overrides in ([f"model={model}"], []):
        try:
            return load(name, *overrides)
        except UserError:
            pass
    return None


def _told(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
