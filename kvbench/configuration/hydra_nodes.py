"""Hydra's own node of a configuration: Hydra calls what it names, so files of --config-dir may not set that."""

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hydra.core.override_parser.overrides_parser import OverridesParser
from omegaconf import OmegaConf

from kvbench.config import compose_config, search_path, values_of
from kvbench.errors import UserError
from kvbench.utils.interpolations import Written, check_resolvable, marked, resolvable
from kvbench.utils.model_override import expanded
from kvbench.utils.targets import TARGET

# Nodes that name functions and classes in forms of their own.
LOGGING = ("job_logging", "hydra_logging")


def check_what_hydra_runs(overrides: Sequence[str], folder: object) -> None:
    """Refuse files of --config-dir FOLDER that change what Hydra itself calls or reads: only the command line may.

    Of a sweep, each choice of a file is checked beside the values that all jobs have.
    """
    parsed = OverridesParser.create().parse_overrides(expanded(overrides))
    fixed = [one for one in parsed if not one.is_sweep_override()]
    own = [one.input_line for one in fixed if re.match(r"hydra[./](?!launcher)", one.key_or_group)]
    given = [one.input_line for one in fixed if not re.match("hydra[./](launcher|sweeper)", one.key_or_group)]
    swept = [one for one in parsed if one.is_sweep_override() and "." not in one.key_or_group]
    wanted = _node(own)
    for chosen in [[], *([value] for one in swept for value in values_of(one))]:
        _check(_node([*search_path(), *given, *chosen]), wanted, f"--config-dir {folder}")


def _node(overrides: Sequence[str]) -> dict[Any, Any]:
    node = OmegaConf.to_container(compose_config(overrides, return_hydra_config=True).hydra, resolve=False)
    assert isinstance(node, dict), "Hydra's node is a mapping"
    return node


def _check(found: Mapping[Any, Any], wanted: Mapping[Any, Any], where: str) -> None:
    known = {*_targets(wanted)}
    named = [one.path for one in _targets(found) if one not in known]
    if named := [*named, *(node for node in LOGGING if found[node] != wanted[node])]:
        node = named[0].partition(".")[0]
        raise UserError(f"{where} sets hydra.{node}, which names code to run: leave it out")
    if swept := [key for key in found["sweeper"].get("params") or {} if re.match(r"[+~]*hydra\b", str(key))]:
        raise UserError(f"{where} sweeps over {swept[0]}: leave it out")
    resolved = {text for _, text in marked(wanted)}
    for path, text in marked(found):
        if text not in resolved and not resolvable(text):
            check_resolvable({f"hydra.{path}": text}, f"{where}: ")


def _targets(node: object, path: str = "") -> Iterator[Written]:
    """The classes that a node names, each with the place at which it stands."""
    if isinstance(node, Mapping):
        for key, value in node.items():
            if key == TARGET and value is not None:
                yield Written(path, str(value))
            yield from _targets(value, f"{path}.{key}".lstrip("."))
    elif isinstance(node, list):
        for value in node:
            yield from _targets(value, path)
