"""A command line for a resolved configuration, from a run's manifest."""

import re
import shlex
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from hydra.errors import HydraException
from omegaconf.errors import OmegaConfBaseException

from kvbench.configuration.conf import choices, composed, options
from kvbench.errors import UserError
from kvbench.utils.override_text import override_text
from kvbench.utils.targets import DESCRIBING

# Keys whose value is the name of a file, in addition to the experiment.
GROUPS = ("model", "benchmark")
# A valid key of an override: a manifest may come from anybody.
KEY = re.compile(r"[\w.-]+")


def command_of(
    config: Mapping[str, Any], compose: Callable[[tuple[str, ...]], dict[str, Any]] = composed
) -> tuple[str, bool]:
    """A short command for the configuration `config`, and whether this version composes exactly `config` from it.

    Texts that describe a node are not compared. The command names the files of conf/ from which the configuration
    comes, and every key that differs from these files, up to the first key that no command can set. `compose` is
    `composed`, or a function that caches its results for many configurations.
    """
    overrides = _files(config, compose)
    effective = _effective(config)
    try:
        overrides += _differences(effective, _effective(compose(tuple(overrides))))
        exact = _effective(compose(tuple(overrides))) == effective
    except (UserError, HydraException, OmegaConfBaseException):  # keys that are unknown to this version or invalid
        exact = False
    return shlex.join(["kvbench", *overrides]), exact


def _files(config: Mapping[str, Any], compose: Callable[[tuple[str, ...]], dict[str, Any]]) -> list[str]:
    """The choices of an experiment, a model, a benchmark, methods and probes."""
    experiment = (config.get("experiment") or {}).get("name")
    overrides = [f"+experiment={experiment}"] if experiment in choices("experiment") else []
    base = compose(tuple(overrides))
    for group in GROUPS:
        about = (config.get(group) or {}).get("about")
        named = [name for name, text in options(group).items() if about and text == about]
        if named and base[group].get("about") != about:
            overrides.append(f"{group}={named[0]}")
    for group in ("method", "probe"):
        chosen, default = (_built(sections.get(group) or {}, group) for sections in (config, base))
        if chosen and chosen != default:
            overrides.append(f"{group}={chosen[0]}" if len(chosen) == 1 else f"{group}=[{','.join(chosen)}]")
    return overrides


def _effective(config: Mapping[str, Any]) -> dict[str, Any]:
    """The configuration without descriptions, so that a version with other descriptions has an equal one."""
    model, experiment = (dict(config.get(group) or {}) for group in ("model", "experiment"))
    model.pop("parameters", None)  # only estimates of an experiment's cost read it
    experiment.pop("chosen", None)
    return _without_texts({**config, "model": model, "experiment": experiment or None})


def _without_texts(node: Mapping[str, Any]) -> dict[str, Any]:
    plain = {key: value for key, value in node.items() if key not in DESCRIBING}
    return {key: _without_texts(value) if isinstance(value, Mapping) else value for key, value in plain.items()}


def _differences(config: Mapping[str, Any], base: Mapping[str, Any], path: str = "") -> Iterator[str]:
    """An override for each key that differs. Raises UserError for an invalid key, and for a key of Hydra."""
    for key, value in config.items():
        if not KEY.fullmatch(key) or f"{path}{key}".partition(".")[0] == "hydra":
            raise UserError(f"{path}{key}: a command cannot set this key")
        if key not in base:
            yield f"+{path}{key}={override_text(value)}"
        elif isinstance(value, Mapping) and isinstance(base[key], Mapping):
            yield from _differences(value, base[key], f"{path}{key}.")
        elif value != base[key]:
            yield f"{path}{key}={override_text(value)}"


def _built(nodes: Mapping[str, Any], group: str) -> list[str]:
    """The names of nodes with a class and a file; `+experiment=… method=…` leaves nodes without a class."""
    known = choices(group)
    return [name for name, node in nodes.items() if name in known and isinstance(node, Mapping) and "_target_" in node]
