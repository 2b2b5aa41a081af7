"""Configurations that Hydra composes once in a process: composing takes a tenth of a second, a copy half a millisecond.

Folders, files and addresses, which differ from test to test, are set in the copy.

The command line composes for itself; it and what is composed anew take over the files of conf/ that were read before.
"""

import pickle
import re
from collections import Counter
from collections.abc import Sequence
from typing import Any

import hydra
from hydra._internal.config_repository import ConfigRepository
from hydra.core.global_hydra import GlobalHydra
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig, OmegaConf

from tests.support.paths import ROOT

COMPOSE = hydra.compose
READ = ConfigRepository.load_config
# A search path of files that no test writes.
FIXED = ["pkg://hydra.conf", str(ROOT / "conf"), "structured://"]
# An override with a folder, a file or an address.
PLACE = re.compile(r"([a-z_.]+)=((?:/|http://127\.0\.0\.1:\d)[\w/.:-]*)")

_composed: dict[bytes, bytes] = {}
_read: dict[str, bytes] = {}


def share_compositions() -> None:
    """Give what is imported from now on the `compose` below, and Hydra `read`."""
    hydra.compose = compose
    ConfigRepository.load_config = read


def read(self: ConfigRepository, config_path: str) -> ConfigResult | None:
    """`ConfigRepository.load_config`, of files in FIXED once: parsing them is a third of composing."""
    if [source.path for source in self.get_sources()] != [entry.rpartition("://")[2] for entry in FIXED]:
        return READ(self, config_path)
    if config_path not in _read:
        _read[config_path] = pickle.dumps(READ(self, config_path))
    return pickle.loads(_read[config_path])


def compose(config_name: str | None = None, overrides: list[str] | None = None, **options: bool) -> DictConfig:
    """`hydra.compose`, of files in FIXED once for equal arguments.

    With Hydra's own node always anew: it has the working directory.
    """
    places = [entry.path for entry in GlobalHydra.instance().config_loader().get_search_path().get_path()]
    elsewhere = any(override.startswith("hydra.searchpath=") for override in overrides or ())
    if places != FIXED or elsewhere or options.get("return_hydra_config"):
        return COMPOSE(config_name, overrides, **options)
    set_afterwards = places_of(overrides or ())
    rest = [override for override in overrides or () if override.partition("=")[0] not in set_afterwards]
    config = once(config_name, rest, options)
    if not all(is_value(config, key) for key in set_afterwards):  # the choice of a file, or a mistake
        return once(config_name, list(overrides or ()), options)
    for key, value in set_afterwards.items():
        OmegaConf.update(config, key, value)
    return config


def places_of(overrides: Sequence[str]) -> dict[str, str]:
    """The values of overrides like PLACE, by key; without keys that are overridden several times."""
    times = Counter(override.partition("=")[0].lstrip("+~") for override in overrides)
    matches = [match.groups() for override in overrides if (match := PLACE.fullmatch(override))]
    return {key: value for key, value in matches if times[key] == 1}


def is_value(config: DictConfig, key: str) -> bool:
    """Whether the configuration has a plain value at the key, or one that is missing."""
    above, _, last = key.rpartition(".")
    node: Any = OmegaConf.select(config, above) if above else config
    return OmegaConf.is_dict(node) and last in list(node) and not OmegaConf.is_config(node._get_node(last))


def once(config_name: str | None, overrides: list[str], options: dict[str, bool]) -> DictConfig:
    """A copy of what Hydra composes."""
    key = pickle.dumps((config_name, overrides, options))
    if key not in _composed:
        _composed[key] = pickle.dumps(COMPOSE(config_name, overrides, **options))
    return pickle.loads(_composed[key])
