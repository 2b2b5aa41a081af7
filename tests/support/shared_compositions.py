"""Configurations that Hydra composes once in a process: composing takes a tenth of a second, a copy half a millisecond.

The command line goes through `hydra.main`, which composes for itself.
"""

import pickle

import hydra
from hydra.core.global_hydra import GlobalHydra
from omegaconf import DictConfig

from tests.support.paths import ROOT

COMPOSE = hydra.compose
# A search path of files that no test writes.
FIXED = ["pkg://hydra.conf", str(ROOT / "conf"), "structured://"]

_composed: dict[bytes, bytes] = {}


def share_compositions() -> None:
    """Give what is imported from now on the `compose` below."""
    hydra.compose = compose


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
