"""The settings that a run's configuration requests, built here to hold its records against them."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from kvbench.configuration.configuration import chosen_methods
from kvbench.evaluation.settings import Setting
from kvbench.records.identity import method_key
from kvbench.records.recorded_configuration import Recorded, recorded
from kvbench.runner.verify import limits
from kvbench.runner.verify.known_classes import engine_labels, settings_of
from kvbench.utils.hashing import digest
from kvbench.utils.versions import raised, versions

OF_SETTINGS = ("method", "probe", "engine", "experiment", "ratio", "budget", "decode")


@dataclass(frozen=True)
class Requested:
    """Settings by their hash in manifests, or the problem that prevents building them; only labels for an engine."""

    settings: Mapping[str, Setting] = field(default_factory=dict)
    labels: tuple[str, ...] = ()
    problem: str = ""


def hashes(settings: Iterable[Setting], stated: Mapping[str, int]) -> list[str]:
    """The hashes of settings whose methods' parts have the versions that a manifest states; without one, the first."""
    keys = []
    for setting in settings:
        parameters = json.loads(setting.parameters)
        parameters.pop("versions", None)
        parameters |= raised({name: stated.get(name, 1) for name in versions(setting.method)})
        keys.append(method_key(setting.name, json.dumps(parameters, sort_keys=True), setting.ratio, setting.budget))
    return [digest(key) for key in keys]


def requested(manifest: Mapping[str, Any]) -> Requested:
    """The settings of a run, built once for each configuration."""
    config = manifest.get("config") or {}
    return _requested(json.dumps({name: config.get(name) for name in OF_SETTINGS}))


@lru_cache(64)
def _requested(config: str) -> Requested:
    try:
        return _built(recorded({"config": json.loads(config)}))
    except Exception as error:  # a stranger's parameters can raise anything
        return Requested(problem=" ".join(f"{error}".split())[:200] or type(error).__name__)


def _built(config: Recorded) -> Requested:
    if config.probe:
        raise ValueError("they are probes")
    if config.engine:
        limits.check_product(config.engine)
        return Requested(labels=tuple(engine_labels(config.engine)))
    limits.check_settings(chosen_methods(config.method, config.experiment), config.ratio, config.budget)
    settings = settings_of(config)
    labels = tuple(setting.label for setting in settings)
    return Requested({digest(setting.key): setting for setting in settings}, labels)
