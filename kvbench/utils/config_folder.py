"""The YAML files of a folder of --config-dir or of a plug-in, checked before Hydra reads them."""

import codecs
import re
from collections.abc import Iterable, Mapping
from pathlib import Path

from kvbench.errors import UserError
from kvbench.utils.files import visible
from kvbench.utils.interpolations import check_resolvable
from kvbench.utils.yaml_files import read_yaml

DESCRIPTIONS = ("about", "title", "help_group", "colour")
SWITCHES = ("short_help",)  # descriptions that are true or false
MARKS = (codecs.BOM_UTF8, codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE)  # which hide a file's first line from Hydra


# The node under which Hydra places a file, where its first line names one; else that of the file's group.
_PACKAGE = re.compile(r"\s*#\s*@package +(\S+) *$", re.MULTILINE)


def check_folder(folder: Path, groups: Iterable[str], conf: Path) -> None:
    """Raise UserError for the first GROUP/….yaml that cannot be read, whose keys or descriptions are not texts, or that
    Hydra would place elsewhere than the files of that group in kvbench's own folder `conf`."""
    for group in groups:
        own = next(iter(visible(conf / group, "*.yaml")), None)
        for path in visible(folder / group, "**/*.yaml"):
            _check(path)
            if own is not None and path.parent == folder / group:  # deeper ones have no name: others begin with them
                _check_package(path, own)


def _check_package(path: Path, own: Path) -> None:
    """Refuse a file that does not begin with its package, as `own`, one of kvbench's in the same group, does."""
    group, package = path.parent.name, _package(own)
    expected = f"{group}.{path.stem}" if package == f"{group}.{own.stem}" else package
    if expected and _package(path) != expected:
        raise UserError(f"{path} must begin with `# @package {expected}`")


def _package(path: Path) -> str:
    header = _PACKAGE.match(path.read_text(encoding="utf-8"))
    return header[1] if header else ""


def _check(path: Path) -> None:
    contents = read_yaml(path)
    if path.read_bytes().startswith(MARKS):
        raise UserError(f"{path} begins with a byte order mark: save it as UTF-8 without one")
    if not isinstance(contents, Mapping):
        form = "is empty" if contents is None else f"is {contents!r:.60}"
        raise UserError(f"{path} {form}: a file of choices has lines KEY: VALUE")
    for key in contents:
        if not isinstance(key, str):
            raise UserError(f"{path}: the key {key!r} is not a text")
    check_resolvable(contents, f"{path}: ")
    for key in DESCRIPTIONS:
        if not isinstance(contents.get(key, ""), str):
            raise UserError(f"{path}: {key}={contents[key]!r} is not a text")
    for key in SWITCHES:
        if not isinstance(contents.get(key, False), bool):
            raise UserError(f"{path}: {key}={contents[key]!r} must be true or false")
