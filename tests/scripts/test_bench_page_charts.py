"""scripts/benchmarks/bench_page_charts.py: what is compared, and that the documentation has its result."""

import json

import pytest

from scripts.benchmarks.bench_page_charts import chart_data, drawing, html, loaded, own_code, sizes
from tests.support.browser import chromium
from tests.support.paths import ROOT

RESULT = json.loads((ROOT / "results/benchmarks/page_charts.json").read_text(encoding="utf-8"))


def test_only_what_a_library_would_replace_counts_as_our_own_drawing():
    code = drawing(own_code("ours"))
    assert all(f"function {name}(" in code for name in ("plot", "mark", "text", "scale"))
    assert "function pareto" not in code
    assert drawing(own_code("observable_plot")) == own_code("observable_plot")


def test_sizes_count_library_and_own_code():
    alone, with_library = sizes("vega_lite", ""), sizes("vega_lite", "x" * 1000)
    assert with_library["bytes"] - alone["bytes"] == with_library["library_bytes"] == 1000
    assert alone["own_lines"] > 20


def test_every_variant_draws_the_whole_frontier_twice():
    made = chart_data()
    assert len(made["points"]) == RESULT["points"] + 1 and len(made["charts"]) == 2
    assert all("drawAll()" in html(row["charts"], "") for row in RESULT["rows"])


@pytest.mark.heavy
def test_the_page_still_draws_what_the_libraries_are_compared_with(tmp_path):
    """The page's code had moved on, and the comparison ended in an error of the browser."""
    page = tmp_path / "ours.html"
    page.write_text(html("ours", ""), encoding="utf-8")
    with chromium() as driver:
        driver.execute_cdp_cmd("Performance.enable", {"timeDomain": "threadTicks"})
        assert not loaded(driver, page)["refused_by_policy"]


def test_the_documentation_has_the_measured_numbers():
    text = (ROOT / "docs/results.md").read_text(encoding="utf-8")
    for row in RESULT["rows"]:
        cells = [f"{row['bytes']:,}", f"{row['gzip_bytes']:,}", str(row["own_lines"])]
        cells += [f"{row[name]:.1f} ms" for name in ("load_cpu_ms", "redraw_cpu_ms")]
        assert f"| {' | '.join(cells)} |" in text
