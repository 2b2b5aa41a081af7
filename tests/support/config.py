"""The configuration as the command composes it."""

import copy
from collections.abc import Iterable
from functools import cache

from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from kvbench.configuration.conf import CONF, choices
from kvbench.evaluation.settings import build_settings
from kvbench.methods import Method, Storage
from kvbench.utils.targets import build
from tests.support.paths import ROOT

# What needs a package that kvbench does not; tests/integrations/test_kvpress.py tests it.
_FILES = [*(CONF / "method").glob("*.yaml")]
GUESTS = {file.stem for file in _FILES if "\nhelp_group: other libraries\n" in file.read_text(encoding="utf-8")}
NAMES = sorted({file.stem for file in _FILES} - GUESTS)


# What presets leave out: a calibration file, here of a model of 4 layers with 6 query heads.
SCORES = str(ROOT / "tests" / "data" / "head_scores" / "four-layers.json")
FILES = ("gates_file", "scores_file")


def with_files(config, scores: str = SCORES):
    """A method's configuration with the calibration file that it leaves out."""
    if not isinstance(config, dict):
        return config
    own = {key: scores for key in FILES if key in config and config[key] is None}
    return {key: with_files(value, scores) for key, value in config.items()} | own


def method_configs(*names: str, overrides: tuple[str, ...] = (), scores: str = SCORES) -> dict[str, dict]:
    """What `method=[names]` with more overrides makes of conf/method, by name; with this calibration file."""
    composed = _composed(names, overrides) if overrides or not set(names) <= set(NAMES) else _every()
    return {name: with_files(copy.deepcopy(composed[name]), scores) for name in names}


@cache
def _every() -> dict[str, dict]:
    """Each file of conf/method by itself, a dozen at a time: the time for many at once grows with their square."""
    parts = [_composed(tuple(NAMES[start : start + 12])) for start in range(0, len(NAMES), 12)]
    return {name: config for part in parts for name, config in part.items()}


@cache
def _composed(names: tuple[str, ...], overrides: tuple[str, ...] = ()) -> dict[str, dict]:
    """As `method_configs`; a file's node does not depend on which others are chosen.

    Of the configuration only `method`: the rest, which takes as long again, reaches into the nodes of guests alone.
    """
    chosen = f"method=[{','.join(names)}]"
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = (
            compose("config", [chosen, *overrides])
            if GUESTS & {*names}
            else compose(overrides=[f"+{chosen}", *overrides])
        )
    return OmegaConf.to_container(config, resolve=True)["method"]


@cache
def parts(group: str) -> dict[str, dict]:
    """The node of every choice of conf/storage or another group of parts, composed by itself."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose(overrides=[f"+{group}@parts.{choice}={choice}" for choice in choices(group)])
    return {choice: with_files(node) for choice, node in OmegaConf.to_container(config, resolve=True)["parts"].items()}


def quantising(but: Iterable[Storage]) -> dict[str, Storage]:
    """A storage of every class of conf/storage that quantises, but of those that are listed."""
    listed = {*map(type, but)}
    made = [build(node, choice, Storage) for choice, node in parts("storage").items()]
    return {type(one).__name__: one for one in made if one.never_full == "quantised" and type(one) not in listed}


@cache
def model_config(name: str) -> dict:
    """The node of one file of conf/model, which takes nothing from the rest of the configuration; to be read only."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        return OmegaConf.to_container(compose(overrides=[f"+model={name}"]), resolve=True)["model"]


def method(name: str, *overrides: str) -> Method:
    """The method of one file; its UserError where it refuses what the overrides ask for."""
    (setting,) = build_settings(method_configs(name, overrides=overrides), 0.5, None)
    return setting.method


def composed_engine(name: str, *overrides: str) -> dict:
    """The node of `engine=NAME` with more overrides."""
    with initialize_config_dir(str(CONF), version_base="1.3"):
        config = compose(overrides=[f"+engine={name}", *overrides])
    return OmegaConf.to_container(config, resolve=True)["engine"]
