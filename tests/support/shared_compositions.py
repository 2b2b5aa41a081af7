"""Configurations that Hydra composes once in a process: composing takes a tenth of a second, a copy half a millisecond.

The command line composes for itself; it and what is composed anew take over the files of conf/ that were read before.
"""

import pickle

import hydra
from hydra._internal.config_repository import ConfigRepository
from hydra.core.global_hydra import GlobalHydra
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig

from tests.support.paths import ROOT

COMPOSE = hydra.compose
READ = ConfigRepository.load_config
# A search path of files that no test writes.
FIXED = ["pkg://hydra.conf", str(ROOT / "conf"), "structured://"]

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
    key = pickle.dumps((config_name, overrides, options))
    if key not in _composed:
        _composed[key] = pickle.dumps(COMPOSE(config_name, overrides, **options))
    return pickle.loads(_composed[key])
