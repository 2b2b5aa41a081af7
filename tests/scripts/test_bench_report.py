"""scripts/benchmarks/bench_report.py: its made-up runs are runs, and the documentation has its result."""

import json

from kvbench.report.page.run_data import read_run
from scripts.benchmarks.bench_report import LAYERS, SETTINGS, made_run
from tests.support.paths import ROOT


def test_a_made_up_run_is_read_like_any_other(tmp_path):
    made, chunks = read_run(made_run(tmp_path / "run", 1, 4))
    assert len(made["settings"]) == len(SETTINGS) == 12 and len(made["samples"]["id"]) == 4
    assert made["facts"]["question"] == "hidden" and made["heatmap"] is not None
    assert len(chunks[0]) == 48 and len(chunks[0][0][1]) == LAYERS
    assert made["samples"]["answers"][0][0] in made["samples"]["evidence"][0][0]["text"]


def test_the_documentation_has_the_measured_numbers():
    one, two = json.loads((ROOT / "results/benchmarks/report.json").read_text(encoding="utf-8"))["rows"]
    text = (ROOT / "docs/results.md").read_text(encoding="utf-8").replace("\n", " ")
    assert f"takes {one['build_user_s'] + one['build_system_s']:.1f} s of CPU time" in text
    assert f"{one['page_mb']:.0f} MB" in text and f"charts are drawn after {one['to_drawn_s']:.2f} s" in text
    assert f"comparing two runs of 18,000 records takes {two['compare_cpu_s']:.2f} s" in text
