"""SCBench from the command's configuration to tables, in its three modes, on a tiny model and rows of our own."""

import pytest

from kvbench.metrics import scbench
from kvbench.records import load
from kvbench.runner.verify.checks import verify
from kvbench.runner.verify.verdict import Verdict
from tests.support import scbench as made
from tests.support.runs import reported

TASKS = ("kv", "summary_with_needles", "choice_eng")


@pytest.mark.parametrize(
    "mode, question", [("shared", "hidden"), ("turns_golden", "visible"), ("turns_own", "visible")]
)
def test_scbench_from_rows_to_scores(tiny_folder, tmp_path, monkeypatch, mode, question):
    """Answers are short here, so that 18 samples under two settings take a moment."""
    monkeypatch.setattr("kvbench.benchmarks.scbench.benchmark.TASKS", short := made.short_answers())
    monkeypatch.setattr("kvbench.benchmarks.scbench.benchmark.NAMES", {name: (name,) for name in short})
    rows, prompts = made.write_rows(tmp_path), made.prompts_file(tmp_path, monkeypatch)
    places = {"benchmark.data_dir": rows, "benchmark.prompts_file": prompts}
    files = [f"{name}={path}" for name, path in places.items()]
    small = [f"model.path={tiny_folder}", "model.shape=null", "model.max_length=4096", "benchmark.max_length=4000"]
    chosen = ["method=[full,snapkv]", "ratio=0.4", f"benchmark.tasks=[{','.join(TASKS)}]"]
    chosen += ["benchmark=scbench", f"benchmark.mode={mode}", f"question={question}", f"output_dir={tmp_path / 'runs'}"]
    folder = reported(*small, *files, *chosen)
    records = load(folder)
    assert len(records) == 3 * 2 * 3 * 2
    for record in records.to_dict("records"):
        assert record["scores"] == scbench.score(record["question_kind"], record["prediction"], record["answers"])
        assert record["context_id"] == f"{record['whole_task']}:{record['sample'].split(':')[1]}"
    assert records.groupby(["context_id", "setting"])["turn"].agg(list).map(lambda turns: turns == [1, 2, 3]).all()
    table = (folder / "tasks.md").read_text()
    assert ("kv turn 3" in table) == (mode != "shared")
    assert "summary_with_needles passkey" in table
    found = {check.name: check for check in verify(folder, {"model.path": str(tiny_folder), **places})}
    assert not [check for check in found.values() if check.verdict is Verdict.WRONG]
    assert found["prompts"].verdict is Verdict.PROVEN and found["decoding"].verdict is Verdict.PLAUSIBLE
