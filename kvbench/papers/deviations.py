"""The deviations of a run of an experiment from the experiment's file, in words."""

from collections.abc import Mapping
from functools import cache
from pathlib import Path
from typing import Any, NamedTuple

from kvbench.configuration import Configuration
from kvbench.configuration.conf import flat
from kvbench.errors import UserError
from kvbench.papers.experiment import load, named_by
from kvbench.utils.places import PLACES
from kvbench.utils.targets import DESCRIBING
from kvbench.utils.text import count

# Keys of a benchmark that set its size, and words for some of the keys that name the place of its data.
SIZES = ("tasks", "max_length", "lengths", "depths", "num_samples")
SOURCES = {"data_dir": "data from", "haystack_dir": "haystack from", "needle_file": "needle from"}


class Deviations(NamedTuple):
    """A run's changes of its experiment's file: changes that make it smaller, and all other changes."""

    smaller: list[str]
    other: list[str]


def deviations(cfg: Configuration) -> Deviations:
    """The deviations of a run from its experiment's file."""
    experiment, model = named_by(cfg), cfg.model.name
    smaller, other = [], []
    if model not in experiment.models:
        smaller.append(f"{model} in place of {' and '.join(experiment.models)}")
    file = as_published(experiment.name, model)
    if cfg.limit != (file and file.limit):
        smaller.append("all samples" if cfg.limit is None else f"at most {count(cfg.limit, 'sample')} of a task")
    weights = [f"weights from {Path(cfg.model.path).resolve().name}"] if cfg.model.path else []
    if file is None:
        return Deviations(smaller, weights)
    used, stated = cfg.benchmark, file.benchmark
    if used["_target_"] != stated["_target_"]:
        smaller.append(f"benchmark {used['_target_'].rpartition('.')[2]}")
    else:
        smaller += [f"{key} {_text(used[key])}" for key in SIZES if used.get(key) != stated.get(key)]
        more = [key for key in used if key not in (*SIZES, "about") and used[key] != stated.get(key)]
        other += [f"without {key}" if used[key] is None else _source(key, used[key]) for key in more]
    used, stated = ({"question": run.question, "ratio": run.ratio, "budget": run.budget} for run in (cfg, file))
    other += [f"{key} {_text(value)}" for key, value in used.items() if value != stated[key]]
    other += _node_deviations(cfg.methods, file.methods)
    other += _node_deviations(cfg.probe, file.probe)
    return Deviations(smaller, other + weights)


def _node_deviations(used: Mapping[str, Any], stated: Mapping[str, Any]) -> list[str]:
    """The methods (or probes) that only one of two configurations has, and the parameters in which they differ."""
    changes = [f"without {name}" for name in stated if name not in used]
    changes += [f"with {name}" for name in used if name not in stated]
    for name in used:
        if isinstance(used[name], Mapping) and name in stated:
            a, b = flat(used[name]), flat(stated[name])
            keys = [key for key in a if key.rpartition(".")[2] not in DESCRIBING and a[key] != b.get(key)]
            changes += [f"{name}.{key} {_text(a[key])}" for key in keys]
    return changes


@cache
def as_published(name: str, model: str) -> Configuration | None:
    """The configuration of an experiment's file, for `model` if `model` has a file; None for an unknown experiment."""
    for overrides in ([f"model={model}"], []):
        try:
            return load(name, *overrides)
        except UserError:
            pass
    return None


def _source(key: str, value: object) -> str:
    """A key and its value in words; files and folders without their path, which differs from machine to machine."""
    return f"{SOURCES.get(key, key)} {Path(str(value)).name}" if key in PLACES else f"{key} {_text(value)}"


def _text(value: object) -> str:
    return ", ".join(map(str, value)) if isinstance(value, list) else str(value)
