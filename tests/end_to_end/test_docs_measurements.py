"""Sentences that state one number of a measurement have the number of the committed file, however they are worded."""

import json

import pytest

from kvbench.records.command import attempts
from kvbench.utils.text import duration
from tests.support.paths import ROOT

MEDIANS = [
    ("overhead", "ratio_median", ".2f", "docs/how-it-works.md"),
    ("overhead", "ratio_median", ".2f", "docs/decisions/attention.md"),
    ("shared_prefill", "times_faster_median", ".1f", "docs/how-it-works.md"),
    ("shared_prefill", "times_faster_median", ".1f", "docs/decisions/one-prefill.md"),
    ("batched_decode", "times_faster_median", ".1f", "docs/how-it-works.md"),
    ("batched_decode", "times_faster_median", ".1f", "docs/decisions/rows.md"),
]


# The folders of packs whose runs' times a page adds up.
TIMES = [
    ("leaderboard/qwen2.5-coder-0.5b/README.md", ["leaderboard/qwen2.5-coder-0.5b/records/ruler_4k"]),
    ("leaderboard/qwen2.5-coder-0.5b/README.md", ["leaderboard/qwen2.5-coder-0.5b/records/ruler_full"]),
    ("leaderboard/qwen2.5-coder-0.5b/README.md", ["leaderboard/qwen2.5-coder-0.5b/records/hidden_4k"]),
    ("leaderboard/qwen2.5-coder-1.5b/README.md", ["community/qwen2.5-coder-1.5b/ruler-4k"]),
    (
        "leaderboard/qwen2.5-coder-1.5b/README.md",
        [f"community/qwen2.5-coder-1.5b/niah-{q}-4k" for q in ("visible", "hidden")],
    ),
    (
        "leaderboard/qwen2.5-coder-1.5b/README.md",
        [f"community/qwen2.5-coder-1.5b/niah-{q}-8k" for q in ("visible", "hidden")],
    ),
]


def measured(file: str) -> dict:
    return json.loads((ROOT / "results" / file).read_text(encoding="utf-8"))


def text(page: str) -> str:
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


@pytest.mark.parametrize(("file", "key", "digits", "page"), MEDIANS)
def test_a_page_has_the_median_of_its_measurement(file, key, digits, page):
    median = format(measured(f"benchmarks/{file}.json")[key], digits)
    assert f" {median} " in text(page).replace("*", " ")


def test_the_page_about_gpus_has_the_predicted_time_of_the_host():
    eager = measured("gpu/prediction.json")["lengths"][0]["rows"]["1"]["full"]["eager"]
    assert f"the host takes {1000 / eager['high']:.0f} to {1000 / eager['low']:.0f} ms" in text("docs/gpu.md")


@pytest.mark.parametrize(("page", "packs"), TIMES)
def test_a_page_of_results_has_the_time_of_its_runs(page, packs):
    seconds = [run.seconds for pack in packs for run in attempts(ROOT / "results" / pack).values()]
    assert f" {duration(sum(filter(None, seconds)))} of runs" in text(f"results/{page}")
