"""RULER as a whole run of the command, on a tiny model; its table by task."""

from pathlib import Path

import pandas as pd

from kvbench.benchmarks.ruler.tasks import TASKS
from kvbench.metrics.ruler import string_match_all, string_match_part
from kvbench.records import load
from tests.support.ruler_data import HOTPOTQA, SQUAD, ruler
from tests.support.runs import reported, run


def test_all_tasks_run_and_are_told_by_task(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("KVBENCH_CACHE", str(tmp_path / "cache"))
    monkeypatch.setattr("kvbench.benchmarks.ruler.fitting.REDRAWS", 2)
    folder = reported(
        "benchmark=ruler",
        "benchmark.lengths=[1024]",
        "benchmark.num_samples=1",
        f"benchmark.squad={SQUAD}",
        f"benchmark.hotpotqa={HOTPOTQA}",
        f"model.path={tiny_folder}",
        "model.shape=null",
        "model.max_length=4096",
        "method=[full,streaming_llm]",
        "ratio=0.4",
        f"output_dir={tmp_path}",
    )
    records = load(folder)
    assert list(records["task"].unique()) == list(TASKS)
    assert len(records) == 2 * len(TASKS)
    for _, record in records.iterrows():
        match = string_match_part if record["task"].startswith("qa") else string_match_all
        assert record["scores"] == {"score": match(record["prediction"], record["answers"])}
    table = (folder / "tasks.md").read_text()
    assert all(f"| {name} " in table for name in (*TASKS, "retrieval", "aggregation", "qa", "average"))


def test_a_run_goes_on_when_its_questions_lie_elsewhere(tiny_folder, tmp_path, monkeypatch):
    monkeypatch.setenv("KVBENCH_CACHE", str(tmp_path / "cache"))
    copy = tmp_path / "elsewhere.json"
    copy.write_bytes(Path(SQUAD).read_bytes())
    few = ["benchmark=ruler", "benchmark.tasks=qa_1", "benchmark.lengths=[1024]", "benchmark.num_samples=1"]
    few += [f"model.path={tiny_folder}", "model.shape=null", "method=full", f"output_dir={tmp_path / 'runs'}"]
    first, again = (run(*few, f"benchmark.squad={path}") for path in (SQUAD, copy))
    assert first == again
    assert len(load(first)) == 1


def test_several_lengths_have_a_mean_each():
    cells = {("vt", 1024): 1.0, ("cwe", 1024): 0.5, ("vt", 2048): 0.25}
    records = pd.DataFrame(
        {"task": task, "length": length, "sample": f"{task}-{length}", "setting": "full", "scores": {"score": score}}
        for (task, length), score in cells.items()
    )
    table = ruler(lengths=[1024, 2048], tasks=["vt", "cwe"]).breakdown(records)
    assert dict(zip(table["task"], table["full"], strict=True)) == {
        "vt 1024": 100.0,
        "cwe 1024": 50.0,
        "vt 2048": 25.0,
        "1024 (2 of 13)": 75.0,
    }
