"""The methods of `kvbench --help method`: in groups, presets of papers and variants under their method."""

from functools import cache
from typing import NamedTuple

from kvbench.config import CONF, choices
from kvbench.utils.yaml_files import read_yaml

OTHERS = "others"


@cache
def rows() -> dict[str, list[list[str]]]:
    """Group → rows of names, those of conf/method_groups.yaml."""
    groups = read_yaml(CONF / "method_groups.yaml")
    assert isinstance(groups, dict), "a group a key"
    return {str(group): [str(row).split() for row in names] for group, names in groups.items()}


class Row(NamedTuple):
    described: list[str]  # methods
    named: list[str]  # presets without a description


def grouped() -> dict[str, list[Row]]:
    """Group → for each row the methods that are described, and the presets that are only named.

    What no row has and no method's name begins, such as a method of --config-dir, stands under OTHERS.
    """
    named = {name: row[0] for several in rows().values() for row in several for name in row}
    more: dict[str, list[str]] = {}
    for name in choices("method"):
        if name not in named:
            parents = [parent for parent in named if name.startswith(f"{parent}_")]
            more.setdefault(named[max(parents, key=len)] if parents else OTHERS, []).append(name)
    found = {
        group: [
            Row(
                [name for name in row if not name.endswith("_paper")],
                [name for name in row if name.endswith("_paper")] + more.get(row[0], []),
            )
            for row in several
        ]
        for group, several in rows().items()
    }
    return found | ({OTHERS: [Row([name], []) for name in more[OTHERS]]} if OTHERS in more else {})


def family(name: str) -> list[str]:
    """A method and its presets, in the order of the help."""
    for several in grouped().values():
        for described, folded in several:
            if name in (*described, *folded):
                return [name, *(one for one in (*described, *folded) if one != name)]
    return [name]
