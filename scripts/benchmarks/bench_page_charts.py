"""The page's charts with and without a chart library: bytes, CPU time until they are drawn, lines of code.

Draws one frontier (results/frontier/essays, every setting with its bounds) twice in headless Chromium, as on a page:
with kvbench's own code, with Observable Plot and with Vega-Lite. esbuild bundles of each library only what the charts
use, from the npm registry into --cache. Needs npm, chromium, chromedriver and kvbench's extra `dev`.

    python -m scripts.benchmarks.bench_page_charts --json results/benchmarks/page_charts.json
"""

import argparse
import gzip
import json
import re
import statistics
import subprocess
import tempfile
from pathlib import Path

from kvbench.report.page.frontier_data import read_frontier
from kvbench.report.page.page import ASSETS, looks_block, measures_block, source_hash
from scripts.frame import script_parser, tell
from tests.support.browser import chromium

ROOT = Path(__file__).parents[2]
CODE = Path(__file__).parent / "page_charts"
PACKAGES = {"@observablehq/plot": "0.6.17", "vega": "6.4.0", "vega-lite": "6.4.3", "vega-interpreter": "2.3.2"}
ESBUILD = {"esbuild": "0.28.2"}
# What the charts use of each library.
USED = {
    "ours": "",
    "observable_plot": 'export {plot, dot, line, ruleX, ruleY} from "@observablehq/plot";',
    "vega_lite": 'export {compile} from "vega-lite"; export {View, parse} from "vega";'
    'export {expressionInterpreter} from "vega-interpreter";',
}
WIDTHS = (960, 700, 360)
START = "performance.mark('start');"
# The first charts, then each redrawn as when the window changes its width.
DRAW = """
const draws = drawAll();
draws.forEach((draw) => draw(WIDTHS[0]));
document.body.getBoundingClientRect();
"""
REDRAW = "for (const width of WIDTHS) draws.forEach((draw) => draw(width)); document.body.getBoundingClientRect();"


def main() -> None:
    options = _arguments()
    bundles = {name: bundle(code, options.cache / f"{name}.min.js", options.cache) for name, code in USED.items()}
    pages = {name: options.cache / f"{name}.html" for name in bundles}
    for name, page in pages.items():
        page.write_text(html(name, bundles[name]), encoding="utf-8")
    with chromium() as driver:
        driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        # the variants take turns, so that what else the machine does concerns all of them; the first round warms up
        rounds = [{name: loaded(driver, page) for name, page in pages.items()} for _ in range(options.repeats + 1)][1:]
        browser = driver.capabilities["browserVersion"]
    rows = [sizes(name, bundles[name]) | medians([timing[name] for timing in rounds]) for name in pages]
    result = {
        "rows": rows,
        "points": len(frontier()["points"]),
        "packages": PACKAGES | ESBUILD,
        "browser": f"Chromium {browser}",
        "repeats": options.repeats,
    }
    tell(result, options.json)


def bundle(code: str, path: Path, cache: Path) -> str:
    """The part of a library that `code` exports, minified, under the name Lib; empty for no code."""
    if not code:
        return ""
    if not path.is_file():
        wanted = [f"{name}@{version}" for name, version in (PACKAGES | ESBUILD).items()]
        subprocess.run(["npm", "install", "--silent", "--prefix", cache, *wanted], check=True)
        source = cache / f"{path.stem}.in.js"
        source.write_text(code)
        how = ("--bundle", "--minify", "--format=iife", "--global-name=Lib", "--log-level=error")
        subprocess.run([cache / "node_modules/.bin/esbuild", source, *how, f"--outfile={path}"], check=True)
    return path.read_text(encoding="utf-8")


def sizes(name: str, library: str) -> dict:
    """Bytes that the charts add to a page, and the lines of our own code that draw them."""
    code = own_code(name)
    both = (library + code).encode()
    lines = [
        line for line in drawing(code).splitlines() if line.strip() and not line.strip().startswith(("//", "/*", "*"))
    ]
    return {
        "charts": name,
        "library_bytes": len(library.encode()),
        "bytes": len(both),
        "gzip_bytes": len(gzip.compress(both, 9)),
        "own_lines": len(lines),
    }


def drawing(code: str) -> str:
    """Of drawing.js only the functions that a library would replace: `pareto` is needed with each."""
    replaced = re.findall(r"^function (?:plot|mark|text|scale)\(.*?^}$", code, re.MULTILINE | re.DOTALL)
    return "\n".join(replaced) or code


def own_code(name: str) -> str:
    """drawing.js of the page, or the code that draws the same charts with the library."""
    path = ASSETS / "drawing.js" if name == "ours" else CODE / f"{name}.js"
    return path.read_text(encoding="utf-8")


def html(name: str, library: str) -> str:
    """A page with the two charts; the timer starts before the library is read."""
    # `pareto`, colours and elements are the page's own in every variant
    shared = "\n".join(
        (ASSETS / f"{part}.js").read_text(encoding="utf-8")
        for part in ("dom", "address", "picture", "scores", "drawing", "plot")
    )
    style = (ASSETS / "page.css").read_text(encoding="utf-8")
    charts = chart_data()
    data = f"const WIDTHS = {json.dumps(WIDTHS)}; const DATA = {json.dumps(charts)};"
    known = looks_block(point["method"] for point in charts["points"]) + measures_block()
    code = (CODE / f"{name}.js").read_text(encoding="utf-8")
    timed = f"{START}</script><script>{library}</script><script>{code}\n{DRAW}performance.mark('drawn');"
    # styles as the page allows them; `eval` is not allowed either
    policy = f"default-src 'none'; script-src 'unsafe-inline'; style-src {source_hash(style)}"
    meta = f'<meta charset="utf-8"><meta http-equiv="Content-Security-Policy" content="{policy}">'
    head = f'<!DOCTYPE html><html lang="en">{meta}<style>{style}</style>'
    return f"{head}<body>{known}<script>{data}\n{shared}</script><script>{timed}</script></body></html>"


def chart_data() -> dict:
    """The frontier's points, and the two charts: with the dotted line, and without."""
    searched = frontier()
    full = {
        "label": "FullKV",
        "method": "full",
        "title": "FullKV",
        "r_bytes": 1,
        "scores": {"score": [searched["full"]] * 3},
    }
    points = [full, *searched["points"]]
    return {
        "points": [point | {"summary": f"{point['label']}: {point['r_bytes']}"} for point in points],
        "charts": [{"x": "r_bytes", "dotted": searched["least"]}, {"x": "r_bytes", "dotted": None}],
    }


def frontier() -> dict:
    return read_frontier(ROOT / "results/frontier/essays")


def loaded(driver, page: Path) -> dict:
    """Milliseconds: CPU time of the main thread to load and draw, of three redraws, and time passed until drawn."""
    driver.get("about:blank")
    start = cpu(driver)
    driver.get(page.as_uri())
    marks = "performance.getEntriesByName('{}')[0].startTime"
    passed = driver.execute_script(f"return {marks.format('drawn')} - {marks.format('start')}")
    load = cpu(driver)
    driver.execute_script(REDRAW)
    times = {"load_cpu_ms": load - start, "redraw_cpu_ms": cpu(driver) - load, "to_drawn_ms": passed}
    refused = any("Content Security Policy" in entry["message"] for entry in driver.get_log("browser"))
    paths = "return [...document.querySelectorAll('svg')].map((s) => s.querySelectorAll('path').length)"
    drawn = driver.execute_script(paths)
    if len(drawn) != 2 or min(drawn) < len(frontier()["points"]):
        raise SystemExit(f"{page}: the charts were not drawn: {drawn} paths")
    return times | {"refused_by_policy": refused}


def medians(rounds: list[dict]) -> dict:
    """The median of each time; whether the policy refused something in any round."""
    times = {name: statistics.median(timing[name] for timing in rounds) for name in rounds[0] if name.endswith("_ms")}
    return {name: round(value, 1) for name, value in times.items()} | {
        "refused_by_policy": any(timing["refused_by_policy"] for timing in rounds)
    }


def cpu(driver) -> float:
    """Milliseconds of CPU time that the page's main thread has taken."""
    metrics = driver.execute_cdp_cmd("Performance.getMetrics", {})["metrics"]
    return 1000 * next(metric["value"] for metric in metrics if metric["name"] == "TaskDuration")


def _arguments() -> argparse.Namespace:
    parser = script_parser(__doc__)
    parser.add_argument("--repeats", type=int, default=15)
    parser.add_argument("--cache", type=Path, default=Path(tempfile.gettempdir()) / "kvbench-page-charts")
    parser.add_argument("--json", type=Path, help="also write the result to this file")
    options = parser.parse_args()
    options.cache.mkdir(parents=True, exist_ok=True)
    return options


if __name__ == "__main__":
    main()
