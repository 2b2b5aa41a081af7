"""Objects of a manifest's configuration, built only from classes that conf/ or a plug-in names."""

from collections.abc import Mapping
from functools import cache
from typing import Any

from kvbench.benchmarks import Benchmark
from kvbench.configuration.conf import folders
from kvbench.configuration.configuration import chosen_methods
from kvbench.engines.settings import engine_settings
from kvbench.errors import UserError
from kvbench.evaluation.settings import Setting, build_settings
from kvbench.records.pack import paths
from kvbench.records.recorded_configuration import Recorded
from kvbench.runner.verify.places import check_no_files
from kvbench.runner.verify.reach import within_reach
from kvbench.utils.plugins import plugin_of
from kvbench.utils.targets import TARGET, class_of, imported, named_classes
from kvbench.utils.yaml_files import read_yaml


@cache
def targets() -> frozenset[str]:
    """Every `_target_` in conf/ and in plug-ins that names a class of kvbench or of a plug-in."""
    files = (path for folder in folders() for path in folder.rglob("*.yaml"))
    named = (name for path in files for name in named_classes(read_yaml(path)))
    return frozenset(name for name in named if name.startswith("kvbench.") or plugin_of(name))


def known(name: str) -> object:
    """A class that conf/ or a plug-in names. Raises UserError for any other name, without importing it."""
    if name not in targets():
        raise UserError(f"{name} is not a class of the configuration of kvbench or an installed plug-in")
    return imported(name)


def settings_of(config: Recorded) -> list[Setting]:
    """The settings that a run's configuration requests.

    Raises ValueError where it names classes that conf/ does not, or files that are not here.
    """
    methods = chosen_methods(config.method, config.experiment)
    check_no_files(methods, "method")
    if named := next(paths(methods), None):
        raise ValueError(f"they name {named!r} of the machine that ran them")
    try:
        with within_reach({}):
            return build_settings(methods, config.ratio, config.budget, config.compress, known)
    except (OSError, TypeError, AttributeError, KeyError) as error:
        raise ValueError(str(error)) from error


def engine_labels(node: Mapping[str, Any]) -> list[str]:
    """The names of the settings that an engine's configuration requests, not started. Raises as `settings_of`."""
    try:
        with within_reach({}):
            return [setting.label for setting in engine_settings(node, known)]
    except (OSError, TypeError, AttributeError, KeyError) as error:
        raise ValueError(str(error)) from error


def scorer(config: Mapping[str, Any]) -> Benchmark:
    """A configured benchmark without its data, which is enough for `score` of most benchmarks.

    Raises ValueError for a class that conf/ does not name.
    """
    if TARGET not in config:
        raise ValueError("the manifest does not say which benchmark this is")
    benchmark: Benchmark = object.__new__(class_of(config, "benchmark", Benchmark, find=known))
    benchmark.__dict__.update({key: value for key, value in config.items() if key != TARGET})
    return benchmark
