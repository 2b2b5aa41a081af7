"""`kvbench --help` on its own: the methods to begin with, the names of everything else, and where to read on."""

from functools import partial

from rich.markup import escape

from kvbench.configuration.conf import brought_by, choices
from kvbench.runner.help_folded import folded
from kvbench.runner.help_lines import described, listed, sentences
from kvbench.runner.help_methods import short
from kvbench.runner.help_sections import GROUPS, SECTIONS, about, heading, section, settings
from kvbench.utils.plugins import plugins

EXAMPLES = {
    "kvbench": "needle in a haystack on the bundled model, with five methods",
    "kvbench method=snapkv model=llama3-8b ratio=0.2": "",
    "kvbench 'method=[full,snapkv,kivi]' 'ratio=[0.1,0.2]' benchmark=ruler": "",
    "kvbench -m +experiment=pyramidkv_table1": "a published table",
    "kvbench +experiment=pyramidkv_table1 model=smollm2-135m limit=2": "the same, scaled down",
}


def overview() -> list[str]:
    """The lines of the short help."""
    lines = [
        "[bold]kvbench[/]: KV-cache compression methods on the same prompts, budgets and bytes",
        "",
        *described(EXAMPLES),
    ]
    shown = {"method": _methods, "experiment": _experiments}
    for group in GROUPS:
        lines += ["", *heading(group), *shown.get(group, partial(_names, group))()]
    return [
        *lines,
        "",
        "[bold]Settings[/]  with their defaults; what each does: kvbench --help settings",
        *listed(settings()),
        "",
        *section("commands"),
        "",
        *sentences(
            "--help KEY describes a key, such as ratio or decode.batch.",
            f"--help SECTION describes each choice: {', '.join(SECTIONS)}",
            "--help WORD and --help SECTION WORD find what has a word in its name or description: --help fp8",
        ),
    ]


def _methods() -> list[str]:
    """In groups, and how to see the others."""
    texts, groups = about("method"), short()
    width = max(len(name) for names in groups.values() for name in names)
    lines = []
    for group, names in groups.items():
        lines += [f"  [bold]{escape(group)}[/]", *described({name: texts[name] for name in names}, width)]
    left = len(choices("method")) - sum(map(len, groups.values()))
    return [*lines, f"  and {left} more, presets of papers among them: kvbench --help method"]


def _experiments() -> list[str]:
    """A line for each paper."""
    return [*described(folded(choices("experiment"))), "  what each is, and what it costs: kvbench --help experiment"]


def _names(group: str) -> list[str]:
    """The names of a group's choices, a plug-in's choices after its name."""
    by_owner: dict[str, list[str]] = {owner: [] for owner in ("", *(plugin.distribution for plugin in plugins()))}
    for name in choices(group):
        by_owner[brought_by(group, name)].append(name)
    return [line for owner, names in by_owner.items() if names for line in listed(names, f"{owner}: " if owner else "")]
