"""Prompts of one's own, from the documentation's file to a table."""

import json

import pytest

from kvbench.metrics.answers import contains
from kvbench.metrics.bootstrap import equal_pairs_needed
from kvbench.records import load
from kvbench.report.page.run_data import read_run
from tests.support.paths import ROOT
from tests.support.runs import reported, run

EXAMPLE = ROOT / "docs" / "examples" / "own_prompts.jsonl"


def test_the_example_has_texts_enough_for_a_verdict_and_pages_say_how_many_it_takes():
    rows = [json.loads(line) for line in EXAMPLE.read_text(encoding="utf-8").splitlines()]
    texts = {row["context"] for row in rows}
    assert len(texts) == len(rows) >= equal_pairs_needed(0.05)  # `compare --margin 0.05` can say "within"
    assert not any("task" in row for row in rows)  # several tasks take more texts
    assert [row for row in rows if not all(contains(row["context"], answer) for answer in row["answers"])] == []
    readme, frontier, own = (
        (ROOT / page).read_text(encoding="utf-8") for page in ("README.md", "docs/frontier.md", "docs/own-prompts.md")
    )
    five_per_cent, ten_per_cent = equal_pairs_needed(0.05), equal_pairs_needed(0.1)
    assert (
        f"[{ten_per_cent} texts](docs/frontier.md#what-holds)" in readme and f"The example has {len(rows)}." in readme
    )
    assert f"It takes {five_per_cent} texts" in frontier and f"{ten_per_cent} for 10 %" in frontier
    assert f"has {len(rows)},\neach about a text of its own" in own


@pytest.mark.slow
def test_the_example_of_the_documentation_runs_on_the_embedded_model(tmp_path):
    page = (ROOT / "docs" / "own-prompts.md").read_text(encoding="utf-8")
    shown = json.loads(page.split("```json\n")[1].split("\n```")[0])
    first = json.loads(EXAMPLE.read_text(encoding="utf-8").splitlines()[0])
    assert first | {"context": ""} == shown | {"context": ""}
    assert first["context"].startswith(shown["context"].removesuffix(" …"))
    options = ["benchmark.metric=contains", "benchmark.max_new_tokens=16", "method=[full,streaming_llm]", "budget=48"]
    folder = reported("benchmark=jsonl", f"benchmark.path={EXAMPLE}", *options, "limit=6", f"output_dir={tmp_path}")
    records = load(folder).set_index("setting")
    assert len(records) == 2 * 6
    assert records.loc["full"]["scores"].map(lambda scores: scores["score"]).sum() == 5
    assert (records.loc["streaming_llm 48"]["r"] < 0.6).all()


@pytest.fixture
def unanswered(tiny_folder, tmp_path):
    """The arguments of a run of prompts without answers."""
    path = tmp_path / "prompts.jsonl"
    rows = [{"context": f"Number {i} and a few words more.", "question": "What?"} for i in range(3)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    model = [f"model.path={tiny_folder}", "model.shape=null", "method=[full,streaming_llm]", "budget=8"]
    prompts = ["benchmark=jsonl", f"benchmark.path={path}", "benchmark.max_new_tokens=4"]
    return [*prompts, *model, f"output_dir={tmp_path / 'runs'}"]


def test_prompts_without_answers_need_no_score(unanswered):
    assert list(load(run(*unanswered))["scores"]) == [{}] * 6


def test_a_table_and_a_page_show_ratios_where_there_is_neither_score_nor_distance(unanswered):
    folder = reported(*unanswered, "distance=false")
    table = (folder / "table.md").read_text(encoding="utf-8")
    assert "| FullKV | – | 1.000 | 1.000 | – | – |" in table
    assert "no score: no answer is expected, and no distance from FullKV was measured (distance=true)" in table
    made, _ = read_run(folder)
    assert [row["scores"] for row in made["settings"]] == [{"score": [None] * 3}] * 2
    assert made["records"]["scores"] == {"score": [None] * 6} and all(made["records"]["prediction"])
