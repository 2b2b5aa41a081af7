"""The page put together: template, style, scripts and data in one text."""

import hashlib
import json
from base64 import b64encode
from collections.abc import Sequence
from html import escape
from pathlib import Path
from string import Template

from kvbench.report.run_data import read_run

HERE = Path(__file__).parent
# In the order in which they build on each other.
SCRIPTS = ("dom", "table", "scores", "plot", "heatmap", "layers", "sample", "browser", "page")


def page(folders: Sequence[Path]) -> str:
    """The page of one or several runs."""
    data, names = [], []
    for index, folder in enumerate(folders):
        run, chunks = read_run(folder)
        names.append(run["name"])
        data.append(_block(f"run-{index}", run))
        data += [_block(f"layers-{index}-{number}", chunk) for number, chunk in enumerate(chunks)]
    script = "\n".join(['"use strict";', *((HERE / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)])
    style = (HERE / "page.css").read_text(encoding="utf-8")
    return Template((HERE / "page.html").read_text(encoding="utf-8")).substitute(
        title=escape(", ".join(names)),
        script=script,
        style=style,
        policy=f"default-src 'none'; script-src {_hash(script)}; style-src {_hash(style)}; img-src data:",
        data="\n".join([_block("runs", names), *data]),
    )


def embedded(value: object) -> str:
    """JSON that is safe inside a script element and in any encoding: no `<`, `>` or `&`, and ASCII only."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _block(name: str, value: object) -> str:
    """A script element that holds data and is never run."""
    return f'<script type="application/json" id="{name}">{embedded(value)}</script>'


def _hash(text: str) -> str:
    """What a content security policy calls the only inline text that it lets through."""
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
