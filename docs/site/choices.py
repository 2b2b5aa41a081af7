"""MkDocs hook: `<!-- choices: model -->` on a page becomes a table of conf/model, as in `kvbench --help model`."""

import re
from pathlib import Path

import yaml

CONF = Path(__file__).parents[2] / "conf"


def on_page_markdown(markdown, page, config, files):
    return re.sub(r"<!-- choices: (\w+) -->", lambda match: table(match[1]), markdown)


def table(group: str) -> str:
    lines = [f"| `{group}=` | |", "| :-- | :-- |"]
    for path in sorted((CONF / group).glob("*.yaml")):
        lines.append(f"| `{path.stem}` | {yaml.safe_load(path.read_text(encoding='utf-8'))['about']} |")
    return "\n".join(lines)
