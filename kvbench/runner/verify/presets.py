"""The parameters of conf/method's presets, as records have them."""

import json
from collections.abc import Mapping
from functools import cache, lru_cache
from typing import Any

from kvbench.configuration.conf import choices, composed, installed_file
from kvbench.evaluation.settings import as_recorded
from kvbench.utils.targets import DESCRIBING
from kvbench.utils.yaml_files import read_yaml

AMOUNTS = ("ratio", "budget")


def parameters_of(name: str, model: str) -> dict[str, Any] | None:
    """A preset's parameters, of which some depend on the model; None for an unknown preset."""
    if name not in presets():
        return None
    return _composed(name, model if model in names("model") else None)


@cache
def names(group: str) -> tuple[str, ...]:
    """The names of the files in a group of conf/."""
    return tuple(choices(group))


def presets() -> tuple[str, ...]:
    """The names of conf/method."""
    return names("method")


@lru_cache(1024)
def _composed(name: str, model: str | None) -> dict[str, Any] | None:
    try:
        config = composed([f"method={name}", *([f"model={model}"] if model else [])])["method"][name]
        return as_recorded({key: value for key, value in config.items() if key not in {*DESCRIBING, *AMOUNTS}})
    except (OSError, KeyError, ValueError):  # a preset that reads a file of the user's
        return None


def same_as(parameters: Mapping[str, Any], model: str) -> str | None:
    """The first preset with these parameters; None where none has them."""
    of_class = (name for name in presets() if _target(name) == parameters.get("_target_"))
    text = json.dumps(parameters, sort_keys=True)
    return next((name for name in of_class if json.dumps(parameters_of(name, model), sort_keys=True) == text), None)


@cache
def _target(name: str) -> str | None:
    """The class of a preset, from its file alone; None where another file names it."""
    path = installed_file("method", name)
    content = read_yaml(path) if path else None
    return content.get("_target_") if isinstance(content, dict) else None
