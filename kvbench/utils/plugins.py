"""Plug-ins: installed packages that add names to conf/, and classes that a configuration may name.

A distribution declares its package as an entry point of GROUP. The package's folder conf/ names all that it adds, so
that kvbench can list it without importing the package.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from kvbench.errors import UserError, unknown
from kvbench.utils.config_folder import check_folder
from kvbench.utils.files import visible
from kvbench.utils.yaml_files import read_yaml

GROUP = "kvbench.plugins"
# Groups that only plug-ins have, with the key that names their code: a module whose main(arguments) is a command, and
# a function that scores a prediction against its answers.
DECLARED = {"command": "module", "metric": "function"}


@dataclass(frozen=True)
class Plugin:
    """An installed package that extends kvbench."""

    package: str  # as Python imports it
    distribution: str  # as pip installs it
    version: str
    folder: Path  # of the package

    @property
    def conf(self) -> Path:
        return self.folder / "conf"

    def __str__(self) -> str:
        return f"{self.distribution} {self.version}"


@cache
def plugins() -> tuple[Plugin, ...]:
    """The installed plug-ins, by name. Raises UserError if a package or its conf/ is missing."""
    return tuple(sorted(map(_plugin, entry_points(group=GROUP)), key=str))


def _plugin(point: EntryPoint) -> Plugin:
    assert point.dist is not None, "entry points of installed distributions name theirs"
    name, version, package = point.dist.name, point.dist.version, point.value
    if "." in package:
        raise UserError(
            f"the plug-in {name} {version}: its entry point names {package!r}: a top-level package is needed"
        )
    spec = find_spec(package) if package.isidentifier() else None
    if spec is None or spec.origin is None or not spec.submodule_search_locations:
        raise UserError(f"the plug-in {name} {version} is not installed completely: there is no package {package!r}")
    plugin = Plugin(package, name, version, Path(spec.origin).parent)
    if not plugin.conf.is_dir():
        raise UserError(f"the plug-in {plugin} is not installed completely: {package} has no folder conf/")
    return plugin


def plugin_of(target: str) -> Plugin | None:
    """The plug-in to which module.Class belongs."""
    package = target.partition(".")[0]
    return next((plugin for plugin in plugins() if plugin.package == package), None)


def plugin_with(file: str) -> Plugin | None:
    """The plug-in to which a file of Python code belongs."""
    return next((plugin for plugin in plugins() if Path(file).is_relative_to(plugin.folder)), None)


def versions_of(targets: Iterable[str]) -> dict[str, str]:
    """Distribution and version of the plug-ins to which these classes and functions belong."""
    owners = {plugin for target in targets if (plugin := plugin_of(target))}
    return {plugin.distribution: plugin.version for plugin in sorted(owners, key=str)}


def check_files(conf: Path) -> None:
    """Check the files of all plug-ins against those of kvbench's own folder `conf` and of other plug-ins.

    Raises UserError for a group that kvbench does not have, a file in none, one that cannot be read or has another
    package than its group, and a name that is taken.
    """
    groups = sorted(path.name for path in conf.iterdir() if path.is_dir() and path.name not in ("hydra", "experiment"))
    owners: dict[tuple[str, str], object] = {
        (group, path.stem): "kvbench" for group in groups for path in visible(conf / group, "*.yaml")
    }
    for plugin in plugins():
        allowed = [*groups, *DECLARED]
        for path in (*visible(plugin.conf, "*.yaml"), *visible(plugin.conf, "*.yml")):
            raise UserError(f"the plug-in {plugin}: {path} is in no folder of conf/. Allowed: {', '.join(allowed)}")
        for folder in sorted(path.name for path in plugin.conf.iterdir() if path.is_dir()):
            if folder not in allowed:
                raise UserError(f"the plug-in {plugin}: {unknown('folder of conf/', folder, allowed)}")
        try:
            check_folder(plugin.conf, allowed, conf)
        except UserError as error:
            raise UserError(f"the plug-in {plugin}: {error}") from error
        for group in allowed:
            for path in visible(plugin.conf / group, "*.yaml"):
                _claim(owners, group, path.stem, plugin)


def _claim(owners: dict[tuple[str, str], object], group: str, name: str, plugin: Plugin) -> None:
    """Give a group's name to a plug-in. Raises UserError where it is another's."""
    owner = owners.setdefault((group, name), plugin)
    if owner != plugin:
        raise UserError(f"{owner} and the plug-in {plugin} both have a {group} of the name {name!r}")


def declared(group: str, names: Iterable[str]) -> dict[str, Mapping[str, Any]]:
    """The files of all plug-ins in a group of DECLARED, by name.

    Raises UserError for one of kvbench's `names`, and for a name that two plug-ins have.
    """
    files: dict[str, Mapping[str, Any]] = {}
    owners: dict[tuple[str, str], object] = {(group, name): "kvbench" for name in names}
    for plugin in plugins():
        for path in visible(plugin.conf / group, "*.yaml"):
            contents, key = read_yaml(path), DECLARED[group]
            _claim(owners, group, path.stem, plugin)
            if not isinstance(contents, Mapping) or plugin_of(str(contents.get(key))) != plugin:
                raise UserError(f"the plug-in {plugin}: {path} needs {key}: a {key} of {plugin.package}")
            about = f"{contents.get('about', '')} ({plugin.distribution})".strip()
            files[path.stem] = {**contents, "about": about}
    return files
