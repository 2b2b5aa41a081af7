"""Objects of a manifest's configuration: only classes that conf/ names are built, whatever a folder says."""

from collections.abc import Iterator, Mapping
from functools import cache
from typing import Any

from hydra.utils import get_class
from omegaconf import OmegaConf

from kvbench.benchmarks import Benchmark
from kvbench.config import CONF
from kvbench.configuration.configuration import chosen_methods
from kvbench.engines.settings import engine_settings
from kvbench.evaluation.settings import Setting, build_settings
from kvbench.records.recorded_configuration import Recorded


@cache
def targets() -> frozenset[str]:
    """Every `_target_` below conf/ that is kvbench's."""
    files = (OmegaConf.to_container(OmegaConf.load(path)) for path in CONF.rglob("*.yaml"))
    return frozenset(name for file in files for name in _targets(file) if name.startswith("kvbench."))


def _targets(node: object) -> Iterator[str]:
    if isinstance(node, Mapping):
        for key, value in node.items():
            if str(key).startswith("_target_"):
                yield str(value)
            yield from _targets(value)
    elif isinstance(node, list):
        for value in node:
            yield from _targets(value)


def unknown_targets(node: object) -> list[str]:
    """Classes in a configuration that conf/ does not name. They are not imported."""
    return sorted({name for name in _targets(node) if name not in targets() and name != "None"})


def settings_of(config: Recorded) -> list[Setting]:
    """The settings that a run's configuration requests.

    Raises ValueError where it names classes that conf/ does not, or files that are not here.
    """
    methods = chosen_methods(config.method, config.experiment)
    if unknown := unknown_targets(methods):
        raise ValueError(f"{unknown[0]} is no class of kvbench's configuration")
    try:
        return build_settings(methods, config.ratio, config.budget, config.compress)
    except (OSError, TypeError, AttributeError, KeyError) as error:
        raise ValueError(str(error)) from error


def engine_labels(node: Mapping[str, Any]) -> list[str]:
    """The names of the settings that a configuration of an engine requests; the engine is not started.

    Raises ValueError as `settings_of` does.
    """
    if unknown := unknown_targets(node):
        raise ValueError(f"{unknown[0]} is no class of kvbench's configuration")
    try:
        return [setting.label for setting in engine_settings(node)]
    except (OSError, TypeError, AttributeError, KeyError) as error:
        raise ValueError(str(error)) from error


def scorer(config: Mapping[str, Any]) -> Benchmark:
    """A benchmark with its configuration that has read no data: enough for `score` of most benchmarks.

    Raises ValueError for a class that conf/ does not name, and for a metric that would have to be imported.
    """
    if unknown := unknown_targets(config):
        raise ValueError(f"{unknown[0]} is no class of kvbench's configuration")
    if "_target_" not in config:
        raise ValueError("the manifest does not say which benchmark this is")
    kind = get_class(config["_target_"])
    benchmark: Benchmark = object.__new__(kind)
    benchmark.__dict__.update({key: value for key, value in config.items() if key != "_target_"})
    return benchmark
