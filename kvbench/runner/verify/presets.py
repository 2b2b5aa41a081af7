"""The parameters of conf/method's presets, as records have them."""

import json
from collections.abc import Iterable, Mapping, Sequence
from functools import cache
from typing import Any

from kvbench.configuration.conf import choices, composed, installed_file
from kvbench.evaluation.settings import as_recorded
from kvbench.utils.targets import DESCRIBING
from kvbench.utils.yaml_files import read_yaml

AMOUNTS = ("ratio", "budget")
# Presets composed at once take as long as two or three alone; the time for more grows with their square.
TOGETHER = 12
# By preset and model; None where it cannot be composed here.
_parameters: dict[tuple[str, str | None], dict[str, Any] | None] = {}


def parameters_of(name: str, model: str) -> dict[str, Any] | None:
    """A preset's parameters, of which some depend on the model; None for an unknown preset."""
    compose_together([name], model)
    return _parameters.get((name, known_model(model)))


def compose_together(chosen: Iterable[str], model: str | None) -> None:
    """Compose the presets among these names for `parameters_of`: many in a fraction of the time of one by one."""
    model_file = known_model(model)
    new = sorted({name for name in chosen if name in presets() and (name, model_file) not in _parameters})
    for start in range(0, len(new), TOGETHER):
        part = new[start : start + TOGETHER]
        nodes = _composed(part, model_file)
        _parameters.update(((name, model_file), _recorded(nodes.get(name))) for name in part)


def known_model(model: str | None) -> str | None:
    """The name if conf/model has it, else None: models without a file share the parameters of presets."""
    return model if model in names("model") else None


@cache
def names(group: str) -> tuple[str, ...]:
    """The names of the files in a group of conf/."""
    return tuple(choices(group))


def presets() -> tuple[str, ...]:
    """The names of conf/method."""
    return names("method")


def _composed(chosen: Sequence[str], model: str | None) -> dict[str, Any]:
    """The nodes of presets by name, without those that cannot be composed."""
    try:
        nodes: dict[str, Any] = composed([f"method=[{','.join(chosen)}]", *([f"model={model}"] if model else [])])
        return nodes["method"]
    except (OSError, KeyError, ValueError):
        alone = [_composed([name], model) for name in chosen] if len(chosen) > 1 else []
        return {name: node for one in alone for name, node in one.items()}


def _recorded(config: Mapping[str, Any] | None) -> dict[str, Any] | None:
    if config is None:
        return None
    try:
        return as_recorded({key: value for key, value in config.items() if key not in {*DESCRIBING, *AMOUNTS}})
    except (OSError, KeyError, ValueError):  # a preset that reads a file of the user's
        return None


def same_as(parameters: Mapping[str, Any], model: str) -> str | None:
    """The first preset with these parameters; None where none has them."""
    of_class = [name for name in presets() if _target(name) == parameters.get("_target_")]
    compose_together(of_class, model)
    text = json.dumps(parameters, sort_keys=True)
    return next((name for name in of_class if json.dumps(parameters_of(name, model), sort_keys=True) == text), None)


@cache
def _target(name: str) -> str | None:
    """The class of a preset, from its file alone; None where another file names it."""
    path = installed_file("method", name)
    content = read_yaml(path) if path else None
    return content.get("_target_") if isinstance(content, dict) else None
