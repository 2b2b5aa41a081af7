"""The page in one text: template, style, scripts and data.

The template has five placeholders and neither loops nor conditions: all content is drawn in the browser from JSON.
"""

import hashlib
import json
from base64 import b64encode
from collections.abc import Iterable, Sequence
from html import escape
from pathlib import Path
from string import Template
from typing import Any

from kvbench.metrics.aggregate import DIVERGENCES, SMALLER_IS_BETTER
from kvbench.papers.colours import looks
from kvbench.records.identity import FULL
from kvbench.report.page.run_data import kind_of, read_run
from kvbench.report.page.serve_data import read_serve
from kvbench.report.page.speed_data import read_speed

MARKS = 11  # of plot.js
FACTS = ("benchmark", "model", "dtype", "question", "memory")  # a run's title has the facts that distinguish it
ASSETS = Path(__file__).parent / "assets"
# Each script uses the scripts before it.
SCRIPTS = (
    "dom address table text_table picture scores drawing plot frontier speed serve heatmap interval beside differences "
    "layers sample sample_list provenance page"
).split()


def page(folders: Sequence[Path]) -> str:
    """The page of one or several runs, those of speed and of servers under load among them."""
    kinds = {folder: kind_of(folder) for folder in folders}
    answered = [folder for folder in folders if kinds[folder] not in ("speed", "serve")]
    speeds = [read_speed(folder) for folder in folders if kinds[folder] == "speed"]
    serves = [read_serve(folder, answered) for folder in folders if kinds[folder] == "serve"]
    data, runs, methods = [_block("speeds", speeds), _block("serves", serves)], [], [FULL]
    for index, folder in enumerate(answered):
        run, chunks = read_run(folder)
        runs.append({name: run[name] for name in ("name", "facts")})
        methods += [entry["method"] for entry in [*run["settings"], *(run["frontier"] or {"points": []})["points"]]]
        data.append(_block(f"run-{index}", run))
        data += [_block(f"layers-{index}-{number}", chunk) for number, chunk in enumerate(chunks)]
    names = [run["name"] for run in runs]
    known = {"runs": names, "titles": titles(runs)}
    data = [looks_block(methods), measures_block(), *(_block(name, value) for name, value in known.items()), *data]
    script = "\n".join(['"use strict";', *((ASSETS / f"{name}.js").read_text(encoding="utf-8") for name in SCRIPTS)])
    style = (ASSETS / "page.css").read_text(encoding="utf-8")
    return Template((ASSETS / "page.html").read_text(encoding="utf-8")).substitute(
        title=escape(", ".join([*names, *(entry["name"] for entry in [*speeds, *serves])])),
        script=script,
        style=style,
        policy=f"default-src 'none'; script-src {source_hash(script)}; style-src {source_hash(style)}; img-src data:",
        data="\n".join(data),
    )


def titles(runs: Sequence[dict[str, Any]]) -> list[str]:
    """For each run the facts in which the runs differ ("smollm2-135m · hidden"), or its folder's name.

    The name is added where several runs share all facts; where no fact differs, it stands alone.
    """
    differ = [fact for fact in FACTS if len({run["facts"][fact] for run in runs}) > 1]
    joined = [" · ".join(_words(fact, run["facts"][fact]) for fact in differ) for run in runs]
    return [
        title if title and joined.count(title) == 1 else " · ".join(part for part in (title, run["name"]) if part)
        for title, run in zip(joined, runs, strict=True)
    ]


def _words(fact: str, value: str) -> str:
    return f"{fact} {value}" if fact in ("question", "memory") else value


def embedded(value: object) -> str:
    """JSON that is safe inside a script element and in any encoding: no `<`, `>` or `&`, and ASCII only."""
    text = json.dumps(value, allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _block(name: str, value: object) -> str:
    """A script element with data, which no browser runs."""
    return f'<script type="application/json" id="{name}">{embedded(value)}</script>'


def looks_block(methods: Iterable[str]) -> str:
    """The colour and mark of each method of a page."""
    return _block("looks", {name: look._asdict() for name, look in looks(methods, MARKS).items()})


def measures_block() -> str:
    """Which measures are divergences, and of which less is better."""
    return _block("measures", {"divergences": DIVERGENCES, "smallerIsBetter": sorted(SMALLER_IS_BETTER)})


def source_hash(text: str) -> str:
    """The source expression of a content security policy that allows this inline text alone."""
    return f"'sha256-{b64encode(hashlib.sha256(text.encode()).digest()).decode()}'"
