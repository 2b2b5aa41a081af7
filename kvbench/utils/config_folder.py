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


# A line of a file's head, which ends with the first line of another form. The last `# @package NODE` of it is the node
# under which Hydra places the file; without one, that is the node of the file's group.
_HEAD = re.compile(r"#\s*@(\S+)\s+(\S+)")


def check_folder(folder: Path, groups: Iterable[str], conf: Path) -> None:
    """Raise UserError for the first GROUP/….yaml that cannot be read, whose keys or descriptions are not texts, or that
    Hydra would place elsewhere than the files of that group in kvbench's own folder `conf`; and for a GROUP/….yml."""
    for group in groups:
        own = next(iter(visible(conf / group, "*.yaml")), None)
        for path in visible(folder / group, "**/*.yml"):
            raise UserError(f"{path} would not be read: the name of a file of choices ends in .yaml")
        for path in visible(folder / group, "**/*.yaml"):
            _check(path)
            if own is not None and path.parent == folder / group:  # deeper ones have no name: others begin with them
                _check_package(path, own)


def _check_package(path: Path, own: Path) -> None:
    """Refuse a file that has another package than `own`, one of kvbench's in the same group, has there."""
    group, package, given = path.parent.name, _package(own), _package(path)
    expected = f"{group}.{path.stem}" if package == f"{group}.{own.stem}" else package
    if expected and given != expected:
        raise UserError(f"{path} must begin with `# @package {expected}`")
    if given not in ("", expected or group):
        raise UserError(f"{path} has `# @package {given}`, and files of {group}/ have no package: leave the line out")


def _package(path: Path) -> str:
    package = ""
    for line in filter(None, map(str.strip, path.read_text(encoding="utf-8").splitlines())):
        head = _HEAD.fullmatch(line)
        if head is None:
            break
        package = head[2] if head[1] == "package" else package
    return package


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
