"""Writes the table of docs/methods.md from conf/ and docstrings: python -m scripts.maintenance.make_methods_doc

docs/site/method_classes.py shows more of both on the site. Files are read, and no class is imported.
"""

import ast
import re
from functools import cache
from pathlib import Path
from typing import NamedTuple

import yaml

ROOT = Path(__file__).parents[2]
CONF = ROOT / "conf"
DOC = ROOT / "docs" / "methods.md"
# A method's section: its heading, and below it the names of its presets.
SECTION = re.compile(r"^### (.+)\n\n((?:`\w+`(?:,[ \n]|\n))+)$", re.MULTILINE)
GROUP = re.compile(r"^## (.+)$", re.MULTILINE)
TABLE = re.compile(r"^\| \| method \|.*\n(?:\|.*\n)+", re.MULTILINE)
ARXIV = re.compile(r"arXiv\s+(\d{4}\.\d{5})")


class Class(NamedTuple):
    """Where a method, or a part of one, is written, and what it says of itself."""

    file: Path
    about: str


class Section(NamedTuple):
    """A method of the page."""

    title: str
    names: list[str]
    classes: list[str]  # those that no other section shows

    @property
    def anchor(self) -> str:
        return re.sub(r"[^\w -]", "", self.title.lower()).replace(" ", "-")


def main() -> None:
    DOC.write_text(document(DOC.read_text(encoding="utf-8")), encoding="utf-8")


def document(text: str) -> str:
    """docs/methods.md with the table of today in place of its own."""
    return TABLE.sub(lambda _: table(text), text, count=1)


def table(text: str) -> str:
    """A row for each section of the page, in the groups of its headings."""
    lines = ["| | method | idea | `method=` | source |", "| :-- | :-- | :-- | :-- | :-- |"]
    shown = ""
    described = {section.title: section for section in sections(text)}
    for match in re.finditer(f"{GROUP.pattern}|{SECTION.pattern}", text, re.MULTILINE):
        if match[1]:
            group = match[1].lower()
            continue
        section = described[match[2]]
        about = node_of(CONF / "method" / f"{section.names[0]}.yaml")["about"]
        idea = about.partition(": ")[2] or about
        names = ", ".join(f"`{name}`" for name in section.names if "help_group" in _text("method", name))
        cells = ["" if group == shown else group, f"[{section.title}](#{section.anchor})", idea, names, source(section)]
        lines.append(f"| {' | '.join(cells)} |".replace("|  |", "| |"))
        shown = group
    return "\n".join([*lines, ""])


def source(section: Section) -> str:
    """Links to the paper, where a class names it, and to the code."""
    known = [classes()[name] for name in section.classes if name in classes()]
    papers = [match[1] for entry in known if (match := ARXIV.search(entry.about))]
    links = [f"[{paper}](https://arxiv.org/abs/{paper})" for paper in papers[:1]]
    return ", ".join(links + [f"[code](../{entry.file.relative_to(ROOT)})" for entry in known[:1]])


def sections(text: str) -> list[Section]:
    """The page's methods. A class belongs to one section: to the one that its file is named after, else to the first
    whose first preset is made of it, else to the first with such a preset."""
    named = {title: re.findall(r"`(\w+)`", names) for title, names in SECTION.findall(text)}
    claims = [
        (title, target) for title, names in named.items() for target in targets(names[0]) if _named_after(target, title)
    ]
    claims += [(title, target) for title, names in named.items() for target in targets(names[0])]
    claims += [(title, target) for title, names in named.items() for name in names[1:] for target in targets(name)]
    owners = {target: title for title, target in reversed(claims)}
    mine = {title: [target for at, target in claims if at == title and owners[target] == title] for title in named}
    return [Section(title, names, [*dict.fromkeys(mine[title])]) for title, names in named.items()]


def _named_after(name: str, title: str) -> bool:
    """Whether the class's file or folder has the method's name, or a part of it."""
    if name not in classes():
        return False
    file, slug = classes()[name].file.relative_to(ROOT), re.sub(r"\W", "", title.lower())
    return slug in str(file).replace("_", "") or file.stem in slug


def targets(name: str) -> list[str]:
    """The classes of a preset, the method's own first."""
    return [target.rpartition(".")[2] for _, target in sorted(_parts(CONF / "method" / f"{name}.yaml").items())]


def _parts(path: Path) -> dict[str, str]:
    """Place in the configuration → class, as Hydra composes a file from its defaults."""
    node, parts = node_of(path), {}
    for entry in node.pop("defaults", []):
        if isinstance(entry, str):
            name = entry.partition("@")[0]
            parts |= {} if name == "_self_" else _parts(path.with_name(f"{name}.yaml"))
        else:
            ((key, choice),) = entry.items()
            group, _, place = key.removeprefix("override ").lstrip("/").partition("@")
            parts = {at: target for at, target in parts.items() if not f"{at}.".startswith(f"{place}.")}
            if choice:
                part = _parts(CONF / group / f"{choice}.yaml")
                parts |= {f"{place}.{at}".rstrip("."): target for at, target in part.items()}
    return parts | dict(_stated(node))


def _stated(node: object, place: str = "") -> list[tuple[str, str]]:
    """The classes that a file names itself."""
    if not isinstance(node, dict):
        return []
    pairs = [(place, node["_target_"])] if "_target_" in node else []
    return pairs + [target for key, value in node.items() for target in _stated(value, f"{place}.{key}".lstrip("."))]


def _text(group: str, name: str) -> str:
    return (CONF / group / f"{name}.yaml").read_text(encoding="utf-8")


def node_of(path: Path) -> dict:
    return yaml.safe_load(path.read_text(encoding="utf-8"))


@cache
def classes() -> dict[str, Class]:
    """Every class of the methods and of the integrations, by its name."""
    return {
        node.name: Class(path, ast.get_docstring(node) or "")
        for folder in ("methods", "integrations")
        for path in sorted((ROOT / "kvbench" / folder).rglob("*.py"))
        for node in ast.parse(path.read_text(encoding="utf-8")).body
        if isinstance(node, ast.ClassDef)
    }


if __name__ == "__main__":
    main()
