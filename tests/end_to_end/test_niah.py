"""Whole runs of every variant."""

from dataclasses import replace

import pandas as pd
import pytest
from PIL import Image

from kvbench.benchmarks import Sample
from kvbench.benchmarks.niah.ranges import numbers
from kvbench.prefill import full
from kvbench.records import load
from kvbench.report.figures.needle_heatmap import draw_heatmaps
from tests.support.given import SETTINGS, made
from tests.support.niah import VARIANTS, benchmark
from tests.support.runs import arguments, run


@pytest.mark.parametrize("name", [name for name in VARIANTS if name not in ("niah", "niah_pyramidkv_mistral")])
def test_a_variant_runs_from_its_yaml_to_a_figure(name, tiny_folder, tmp_path):
    few = ["benchmark.depths=[0,60]", "method=[full,snapkv]", "ratio=0.5"]
    folder = run(*arguments(tiny_folder, tmp_path, f"benchmark={name}", *few))
    grid = benchmark(name)
    records = load(folder)
    assert set(records["setting"]) == {"full", "snapkv 0.5"}
    assert all(tuple(scores) == grid.metrics for scores in records["scores"])
    assert all(0 <= score <= 1 for scores in records["scores"] for score in scores.values())
    assert {*grid.heatmap(records).cells["length"]} == {*records["length"]}
    assert set(records["task"]) == {grid.name}


@pytest.mark.parametrize("lengths, across", [(71, 2), (2, 5)])
def test_a_figure_stays_as_wide_as_a_page_shows(rendered, tmp_path, lengths, across):
    frame = pd.DataFrame(
        [
            {"setting": f"m{i}", "length": length, "depth": depth, "r": 1.0, "r_bytes": 1.0, "scores": {"rouge1": 0.5}}
            for i in range(5)
            for length in range(1000, 1000 + lengths)
            for depth in numbers("0 to 100 in 10")
        ]
    )
    png, _ = draw_heatmaps(frame, "rouge1", tmp_path / "heatmap", "caption")
    width, height = Image.open(png).size
    assert width <= 15 * 150
    rows = -(-5 // across)
    assert height == pytest.approx(rows * (3.1 if lengths > 12 else 4) * 150 + 1.1 * 150, rel=0.02)


@pytest.mark.parametrize("may_be_empty", [True, False])
def test_only_where_a_tester_allows_it_a_line_end_as_first_token_leaves_an_empty_answer(
    embedded, tmp_path, may_be_empty
):
    fruits = Sample("s", "A list of fruits:", ("x",), 6, chat=False, stop_at_newline=True, may_be_empty=may_be_empty)
    free = made(tmp_path / "free", embedded, [replace(fruits, stop_at_newline=False)], "visible", SETTINGS[:1])
    assert free["s", "full"]["prediction"].startswith("\n")
    record = made(tmp_path / "line", embedded, [fruits], "visible", SETTINGS[:1])["s", "full"]
    assert (record["prediction"] == "") == may_be_empty


def test_hidden_questions_over_one_context_share_its_compression(tiny_folder, tmp_path, monkeypatch):
    seen = []
    real = full.prefill
    monkeypatch.setattr(full, "prefill", lambda model, ids, *rest: seen.append(len(ids)) or real(model, ids, *rest))
    hidden = ["benchmark=niah_multi", "benchmark.seeds=2", "question=hidden", "method=snapkv", "ratio=0.5"]
    records = load(run(*arguments(tiny_folder, tmp_path, *hidden)))
    assert len(records) == 6
    assert len(seen) == 2  # contexts
    assert (records["question_tokens"] > 10).all()


def test_the_embedded_model_finds_needles_of_several_kinds(tmp_path):
    common = ["method=full", "benchmark.lengths=[500]", "limit=1", f"output_dir={tmp_path}"]
    for name, metric in (("niah_multi", "digits"), ("passkey", "exact")):
        records = load(run(f"benchmark={name}", "benchmark.depths=[20,60]", "benchmark.seeds=1", *common))
        assert [scores[metric] for scores in records["scores"]] == [1]
