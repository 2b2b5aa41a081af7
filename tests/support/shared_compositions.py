"""What Hydra composes of the same files, once in a process: composing takes a tenth of a second, a copy a millisecond.

The choice of files (`method=snapkv`) is what takes the time. Values (`ratio=0.5`) are set in a copy by Hydra itself, so
that the commands and configurations of all tests share the choices that they have in common.
"""

import pickle
from collections.abc import Callable
from typing import Any

from hydra._internal import config_loader_impl as loader
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra._internal.config_repository import ConfigRepository, IConfigRepository
from hydra._internal.defaults_list import DefaultsList, Overrides
from hydra.core.config_store import ConfigStore
from hydra.core.default_element import ResultDefault
from hydra.core.override_parser.types import Override
from hydra.plugins.config_source import ConfigResult
from omegaconf import DictConfig

from tests.support.paths import ROOT

READ = ConfigRepository.load_config
CHOOSE = loader.create_defaults_list
MERGE = ConfigLoaderImpl._compose_config_from_defaults_list
# The places of files that no test writes.
FIXED = ["hydra.conf", str(ROOT / "conf"), ""]

_made: dict[object, bytes] = {}


def share_compositions() -> None:
    """Have Hydra take over what it made before of files in FIXED."""
    ConfigRepository.load_config = read
    loader.create_defaults_list = choose
    ConfigLoaderImpl._compose_config_from_defaults_list = merge
    ConfigStore.__deepcopy__ = lambda store, _: store  # there is one; Hydra copies it each time, with all that is in it


def once(repository: IConfigRepository, key: object, make: Callable[[], Any]) -> Any:
    """A copy of what `make` made for the key; made anew where there are files of a test's own."""
    if [source.path for source in repository.get_sources()] != FIXED:
        return make()
    if key not in _made:
        _made[key] = pickle.dumps(make())
    return pickle.loads(_made[key])


def read(self: ConfigRepository, config_path: str) -> ConfigResult | None:
    """The content of a file: parsing is a third of composing."""
    return once(self, config_path, lambda: READ(self, config_path))


def choose(
    repo: IConfigRepository,
    config_name: str | None,
    overrides_list: list[Override],
    prepend_hydra: bool,
    skip_missing: bool,
) -> DefaultsList:
    """The files that the overrides choose; their values choose none."""
    values = Overrides(repo, overrides_list).config_overrides
    chosen = [override for override in overrides_list if all(override is not value for value in values)]
    key = (config_name, *(override.input_line for override in chosen), prepend_hydra, skip_missing)
    made = once(repo, key, lambda: CHOOSE(repo, config_name, chosen, prepend_hydra, skip_missing))
    made.config_overrides = values
    return made


def merge(self: ConfigLoaderImpl, defaults: list[ResultDefault], repo: IConfigRepository) -> DictConfig:
    """The content of the chosen files, one over the other."""
    return once(repo, pickle.dumps(defaults), lambda: MERGE(self, defaults, repo))
