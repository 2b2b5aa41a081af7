"""The text of `kvbench --help`."""

import difflib
from collections.abc import Iterable, Mapping, Sequence

from rich.markup import escape

from kvbench.configuration.conf import CONF, choices, file_of
from kvbench.errors import UserError, unknown
from kvbench.runner.commands import commands
from kvbench.runner.help_lines import described
from kvbench.runner.help_methods import family
from kvbench.runner.help_overview import overview
from kvbench.runner.help_sections import GROUPS, INNER, SECTIONS, about, settings
from kvbench.runner.help_sections import section as lines_of
from kvbench.utils.lines import columns, wrapped
from kvbench.utils.other_words import WORDS
from kvbench.utils.yaml_comments import commented


def help_text(section: str | None = None, *words: str) -> str:
    """What can be chosen and set, read from the YAML files: an overview, one of SECTIONS with a line about each, a
    method with its presets, a key of the configuration or of a group's files, or what is called or described by a word.

    Behind one of SECTIONS, `words` leave what has each of them in its name or description.
    Raises UserError for words that nothing has.
    """
    if section is None:
        return "\n".join(overview())
    if section in SECTIONS:
        return "\n".join(_with_words(section, words) if words else lines_of(section))
    if keys := _keys(section):
        return "\n".join(keys)
    if section in choices("method"):
        return "\n".join(described({name: about("method")[name] for name in family(section)}))
    if section in WORDS:
        return f"  {escape(section)} is {escape(WORDS[section])}"
    slip = difflib.get_close_matches(section, SECTIONS, n=1, cutoff=0.8)
    if not slip and (lines := _keys_of_files(section) or _search((*GROUPS, *INNER), (section, *words))):
        return "\n".join(lines)
    raise unknown("section of --help", section, SECTIONS)


def _keys_of_files(name: str) -> list[str]:
    """What GROUP.KEY is in each file of conf/GROUP that has it, such as benchmark.lengths; empty for any other name."""
    group, _, key = name.partition(".")
    if group not in GROUPS or not key:
        return []
    texts = {}
    for choice in choices(group):
        comments = commented(file_of(group, choice).read_text(encoding="utf-8"))
        if key in comments:
            texts[f"{choice}: {comments[key].value}"] = comments[key].about
    title = f"[bold]{escape(name)}=[/]  of each {group} that has it, with its default"
    return [title, *described(texts)] if texts else []


def _search(groups: Iterable[str], words: Sequence[str]) -> list[str]:
    """Every choice that has all words in its name or description, by group."""
    lines = []
    for group in groups:
        if matching := _having(about(group), words):
            lines += ["", f"[bold]{group}[/]", *described(matching)]
    return lines[1:]


def _with_words(section: str, words: Sequence[str]) -> list[str]:
    """The lines of a section with all words. Raises UserError without any."""
    if section == "settings":
        lines = described(_having(settings(), words))
    elif section == "commands":
        lines = described(_having({name: command.about for name, command in commands().items()}, words))
    else:
        lines = _search((*GROUPS, *INNER) if section == "all" else (section,), words)
    if not lines:
        raise UserError(f"nothing in --help {section} has {' and '.join(map(repr, words))} in its name or description")
    return lines


def _having(texts: Mapping[str, str], words: Sequence[str]) -> dict[str, str]:
    parts = [word.lower() for word in words]
    return {name: text for name, text in texts.items() if all(word in f"{name} {text}".lower() for word in parts)}


def _keys(name: str) -> list[str]:
    """The description of a key, or of each key of a section; empty for any other name."""
    comments = commented((CONF / "config.yaml").read_text(encoding="utf-8"))
    if not any(key == name or key.startswith(f"{name}.") for key in comments):
        return []
    from kvbench.configuration.describe import keys  # brings pydantic, which the other sections do without

    lines = []
    for key in keys():
        if key.name == name or key.name.startswith(f"{name}."):
            about = wrapped(key.about, columns() - 2)
            lines += [f"[cyan]{escape(f'{key.name}={key.default}')}[/]", *(f"  {escape(line)}" for line in about)]
            lines += [f"  [dim]values: {key.values.replace('`', '')}[/]"]
    return lines
