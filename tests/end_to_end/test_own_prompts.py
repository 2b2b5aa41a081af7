"""Prompts of one's own, from the documentation's file to a table."""

import json

import pytest

from kvbench.records import load
from tests.support.paths import ROOT
from tests.support.runs import reported, run

EXAMPLE = ROOT / "docs" / "examples" / "own_prompts.jsonl"


@pytest.mark.slow
def test_the_example_of_the_documentation_runs_on_the_embedded_model(tmp_path):
    page = (ROOT / "docs" / "own-prompts.md").read_text(encoding="utf-8")
    shown = json.loads(page.split("```json\n")[1].split("\n```")[0])
    first = json.loads(EXAMPLE.read_text(encoding="utf-8").splitlines()[0])
    assert first | {"context": ""} == shown | {"context": ""}
    assert first["context"].startswith(shown["context"].removesuffix(" …"))
    options = ["benchmark.metric=contains", "benchmark.max_new_tokens=16", "method=[full,streaming_llm]", "budget=48"]
    folder = reported("benchmark=jsonl", f"benchmark.path={EXAMPLE}", *options, "limit=1", f"output_dir={tmp_path}")
    records = load(folder).set_index(["setting", "task"])
    assert len(records) == 2 * 6
    assert records.loc["full"]["scores"].map(lambda scores: scores["score"]).sum() == 4
    assert (records.loc["streaming_llm 48"]["r"] < 0.6).all()
    assert "| lease |" in (folder / "tasks.md").read_text(encoding="utf-8")


def test_prompts_without_answers_need_no_score(tiny_folder, tmp_path):
    path = tmp_path / "prompts.jsonl"
    rows = [{"context": f"Number {i} and a few words more.", "question": "What?"} for i in range(3)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    model = [
        f"model.path={tiny_folder}",
        "model.shape=null",
        "benchmark.max_new_tokens=4",
        "method=[full,streaming_llm]",
    ]
    folder = run("benchmark=jsonl", f"benchmark.path={path}", *model, "budget=8", f"output_dir={tmp_path / 'runs'}")
    assert list(load(folder)["scores"]) == [{}] * 6
