"""MkDocs hook: below each method of methods.md, its presets, its docstrings and its configuration files.

The page in the checkout links to the code instead, and these links lead to the docstrings here.
"""

import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
from scripts.maintenance.make_methods_doc import CONF, SECTION, Section, classes, node_of, sections  # noqa: E402

PARTS = ("allocation", "scoring", "heads", "storage", "decode_compression")


def on_page_markdown(markdown, page, config, files):
    if page.file.src_uri != "methods.md":
        return markdown
    for section in sections(markdown):
        for name in section.classes:
            file = classes()[name].file.relative_to(ROOT)
            markdown = markdown.replace(f"[code](../{file})", f"[code](#{path_of(name)})")
    described = {section.title: section for section in sections(markdown)}
    return SECTION.sub(lambda match: match[0] + "\n" + details(described[match[1]]), markdown)


def details(section: Section) -> str:
    """What the site shows below a method's names."""
    about = {name: node_of(CONF / "method" / f"{name}.yaml")["about"] for name in section.names}
    lines = [f"- `{name}`: {text}" for name, text in about.items()] if len(about) > 1 else []
    for name in section.classes:
        lines += [
            "",
            f"::: {path_of(name)}",
            "    options: {heading_level: 4, members: false, show_root_full_path: false}",
        ]
    files = [CONF / "method" / f"{section.names[0]}.yaml"]
    files += [path for group in PARTS for path in sorted((CONF / group).glob("*.yaml")) if made_of(path, section)]
    for path in files:
        code = "\n".join(f"    {line}" for line in path.read_text(encoding="utf-8").splitlines())
        lines += ["", f'??? note "{path.relative_to(ROOT)}"', "    ```yaml", code, "    ```"]
    return "\n".join([*lines, ""])


def made_of(path: Path, section: Section) -> bool:
    """Whether a part's file names a class of the section."""
    return str(node_of(path).get("_target_")).rpartition(".")[2] in section.classes


def path_of(name: str) -> str:
    """The class as Python imports it, which is its anchor."""
    module = classes()[name].file.relative_to(ROOT).with_suffix("")
    return ".".join((*module.parts, name)).replace(".__init__", "")
