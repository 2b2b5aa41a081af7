"""Hydra's own node of a configuration. Hydra calls functions that it names, so files of --config-dir may not set it."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hydra.core.override_parser.types import Override
from omegaconf import OmegaConf

from kvbench.configuration.conf import compose_config, parsed, search_path, values_of, with_hydra
from kvbench.errors import UserError
from kvbench.utils.interpolations import Written, check_resolvable, marked, resolvable
from kvbench.utils.model_override import expanded
from kvbench.utils.targets import TARGET

# Nodes that name functions and classes without `_target_`.
LOGGING = ("job_logging", "hydra_logging")


def check_what_hydra_runs(overrides: Sequence[str], folder: object) -> None:
    """Refuse files of --config-dir FOLDER that change what Hydra itself calls or reads: only the command line may.

    In a sweep, each choice of a file is checked together with the values that all jobs have, but for values of the keys
    of what is chosen, which other files of the group may lack.
    """
    with with_hydra():
        _check_choices(parsed(expanded(overrides)), folder)


def _check_choices(overrides: Sequence[Override], folder: object) -> None:
    fixed = [part for part in overrides if not part.is_sweep_override()]
    of_hydra = [part.input_line for part in fixed if re.match(r"hydra[./](?!launcher)", part.key_or_group)]
    swept = [part for part in overrides if part.is_sweep_override() and "." not in part.key_or_group]
    elsewhere = ("hydra.launcher", "hydra/launcher", "hydra.sweeper", "hydra/sweeper", *map(_keys_of, swept))
    common = [part.input_line for part in fixed if not part.key_or_group.startswith(elsewhere)]
    allowed = _node(of_hydra)
    for choice in [[], *([value] for part in swept for value in values_of(part))]:
        _check(_node([*search_path(), *common, *choice]), allowed, f"--config-dir {folder}")


def _keys_of(choice: Override) -> str:
    """What the keys of a choice begin with."""
    return f"{choice.package or choice.key_or_group}."


def _node(overrides: Sequence[str]) -> dict[Any, Any]:
    node = OmegaConf.to_container(compose_config(overrides, return_hydra_config=True).hydra, resolve=False)
    assert isinstance(node, dict), "Hydra's node is a mapping"
    return node


def _check(actual: Mapping[Any, Any], allowed: Mapping[Any, Any], where: str) -> None:
    allowed_targets = {*_targets(allowed)}
    changed = [target.path for target in _targets(actual) if target not in allowed_targets]
    if changed := [*changed, *(node for node in LOGGING if actual[node] != allowed[node])]:
        node = changed[0].partition(".")[0]
        raise UserError(f"{where} sets hydra.{node}, which names code to run: leave it out")
    if swept := [key for key in actual["sweeper"].get("params") or {} if re.match(r"[+~]*hydra\b", str(key))]:
        raise UserError(f"{where} sweeps over {swept[0]}: leave it out")
    resolved = {text for _, text in marked(allowed)}
    for path, text in marked(actual):
        if text not in resolved and not resolvable(text):
            check_resolvable({f"hydra.{path}": text}, f"{where}: ")


def _targets(node: object, path: str = "") -> Iterator[Written]:
    """The classes that a node names, each with its place."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key == TARGET and value is not None:
                yield Written(path, str(value))
            yield from _targets(value, f"{path}.{key}".lstrip("."))
    elif isinstance(node, list):
        for value in node:
            yield from _targets(value, path)
