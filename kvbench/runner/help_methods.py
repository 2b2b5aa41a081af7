"""The methods of `kvbench --help method`: in the groups that their files state, with their presets below them."""

from typing import NamedTuple

from kvbench.configuration.conf import CONF, choices, file_of, parent, stated

# The order of the groups; others that files state follow, and what states none stands under OTHERS.
GROUPS = (
    "baselines",
    "which tokens stay",
    "budgets of layers",
    "budgets of heads",
    "merged and shared vectors",
    "smaller vectors",
    "during prefill and decoding",
    "other libraries",
)
OTHERS = "others"


class Row(NamedTuple):
    """A method that is described, and presets that are only named."""

    name: str
    presets: list[str]


def grouped() -> dict[str, list[Row]]:
    """Group → the methods whose files state it as their `help_group`.

    A file without one is a preset of the method with whose name its own begins, or else from whose file it is made. A
    user's file that is made from one of kvbench's is a separate method.
    """
    groups = {name: group for name, group in stated("method", "help_group").items() if group}
    rows: dict[str, dict[str, Row]] = {group: {} for group in (*GROUPS, *groups.values(), OTHERS)}
    for name in choices("method"):
        main = _method_of(name, groups)
        row = rows[groups.get(main, OTHERS)].setdefault(main, Row(main, []))
        if main != name:
            row.presets.append(name)
    return {group: [*methods.values()] for group, methods in rows.items() if methods}


def short() -> dict[str, list[str]]:
    """Group → the methods of `kvbench --help`: those whose files state `short_help`, and all that others bring."""
    first = stated("method", "short_help")
    groups = {
        group: [name for row in rows for name in (row.name, *row.presets) if first[name] or not _bundled(name)]
        for group, rows in grouped().items()
    }
    return {group: names for group, names in groups.items() if names}


def family(name: str) -> list[str]:
    """A method and its presets, and the methods whose names begin with the same word, in the order of the help."""
    rows = [row for several in grouped().values() for row in several]
    word = next((_word(row.name) for row in rows if name in (row.name, *row.presets)), name)
    relatives = [relative for row in rows if _word(row.name) == word for relative in (row.name, *row.presets)]
    return [name, *(relative for relative in relatives if relative != name)]


def _bundled(name: str) -> bool:
    return file_of("method", name).is_relative_to(CONF)


def _method_of(name: str, described: dict[str, str]) -> str:
    """The described method that a choice belongs to: itself, if there is none."""
    if name in described:
        return name
    if names := [other for other in described if name.startswith(f"{other}_")]:
        return max(names, key=len)
    above = parent("method", name)
    if above is None or above not in choices("method") or (_bundled(above) and not _bundled(name)):
        return name
    main = _method_of(above, described)
    return main if main in described else name


def _word(name: str) -> str:
    return name.partition("_")[0]
