"""The YAML files of a folder of --config-dir or of a plug-in, checked before Hydra reads them."""

from collections.abc import Iterable, Mapping
from pathlib import Path

from kvbench.errors import UserError
from kvbench.utils.interpolations import check_resolvable
from kvbench.utils.yaml_files import read_yaml

DESCRIPTIONS = ("about", "title", "help_group", "colour")
SWITCHES = ("short_help",)  # descriptions that are true or false


def check_folder(folder: Path, groups: Iterable[str]) -> None:
    """Raise UserError for the first GROUP/….yaml that cannot be read, or whose keys or descriptions are not texts."""
    for group in groups:
        for path in sorted((folder / group).rglob("*.yaml")):
            _check(path)


def _check(path: Path) -> None:
    contents = read_yaml(path)
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
