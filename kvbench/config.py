"""Where conf/ is, what it offers, and how its nodes become objects."""

import re
from collections.abc import Mapping, Sequence
from contextlib import nullcontext
from functools import cache
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra.core.global_hydra import GlobalHydra
from hydra.errors import InstantiationException
from hydra.utils import instantiate
from omegaconf import OmegaConf

from kvbench.errors import UserError
from kvbench.utils.text import in_one_line

_PACKAGED = Path(__file__).parent / "conf"  # in an installed wheel
CONF = _PACKAGED if _PACKAGED.is_dir() else Path(__file__).parents[1] / "conf"


def build(config: Mapping, what: str):
    """Instantiate a configuration's `_target_`; its complaints as UserError that say what was being built."""
    if "_target_" not in config:
        raise UserError(f"{what} has no _target_: its YAML must name a class")
    try:
        return instantiate({key: value for key, value in config.items() if key != "about"}, _convert_="all")
    except InstantiationException as error:
        raise UserError(f"{what}: {in_one_line(error.__cause__ or error)}") from error


def composed(overrides: Sequence[str]) -> dict:
    """The whole resolved configuration that the command line `overrides` stand for.

    Inside a run of the command the files of its --config-dir count too.
    """
    running = GlobalHydra.instance().is_initialized()
    with nullcontext() if running else initialize_config_dir(str(CONF), version_base="1.3"):
        return OmegaConf.to_container(compose("config", list(overrides)), resolve=True)


def choices(group: str) -> list[str]:
    """The names of a config group in natural order: table2 before table10."""
    stems = [file.stem for file in (CONF / group).glob("*.yaml")]
    return sorted(stems, key=lambda stem: [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", stem)])


@cache
def options(group: str) -> dict[str, str]:
    """Name and one line about each choice of a config group."""
    read = {name: OmegaConf.load(CONF / group / f"{name}.yaml") for name in choices(group)}
    return {
        name: file.get("about") or OmegaConf.select(file, f"{group}.about", default="") for name, file in read.items()
    }


def flat(node: Mapping, path: str = "") -> dict[str, object]:
    """Every leaf by its dotted path."""
    leaves = {}
    for key, value in node.items():
        leaves |= flat(value, f"{path}{key}.") if isinstance(value, Mapping) else {f"{path}{key}": value}
    return leaves
