"""Runs of servers under load on the page."""

import pytest

from kvbench.report.page.serve_data import read_serve
from tests.support.command import kvbench
from tests.support.page import blocks
from tests.support.report_run import record, write_run
from tests.support.served_runs import load_record, served_runs, write

pytestmark = pytest.mark.filterwarnings("ignore:no manifest of run")


def cells(table, row):
    return dict(zip(table["header"], table["rows"][row]["cells"], strict=True))


def test_a_run_of_loads_is_its_own_table(tmp_path):
    _, loads = served_runs(tmp_path)
    made = read_serve(loads, [])
    assert made["name"] == "loads" and made["model"] == "tiny" and [*made["tables"]] == [""]
    row = cells(made["tables"][""], 3)
    assert row["setting · load"] == "q8_0 · 4 at once" and row["first token p50"] == "90"
    assert made["tables"][""]["rows"][3]["method"] == "q8_0"
    assert made["tables"][""]["notes"][0].startswith("guidellm 0.8.1 · 3 repeats of each load")


def test_the_answers_of_the_same_settings_stand_in_each_row(tmp_path):
    answers, loads = served_runs(tmp_path)
    other = write_run(tmp_path / "other", [record("s", "full", 1.0)])
    made = read_serve(loads, [other, answers])
    assert [*made["tables"]] == ["", "1"], "by the number of the run that has them"
    joined = made["tables"]["1"]
    for row in (2, 3):
        shown = cells(joined, row)
        assert shown["setting · load"].startswith("q8_0 · ") and shown["equal answers"] == "190 of 200"
        assert shown["score"] == "1.000" and shown["× baseline"].startswith("1.20 (")
    assert joined["notes"][-1].startswith("q8_0 loses at most 0.02 of score and gives 1.20 times f16's tokens a second")


def test_another_model_is_not_joined_and_other_flags_are_said(tmp_path):
    answers, _ = served_runs(tmp_path)
    another = write(tmp_path / "another", [load_record("f16", 1.0, [1.0], [1.0]) | {"model": "large"}])
    assert [*read_serve(another, [answers])["tables"]] == [""]
    changed = write(tmp_path / "changed", [load_record("q8_0", 1.0, [1.0], [1.0], " another version")])
    notes = read_serve(changed, [answers])["tables"]["0"]["notes"]
    assert notes[-1] == "q8_0 answered and was loaded with other flags or another version"


def test_loads_of_another_machine_are_not_compared(tmp_path):
    answers, _ = served_runs(tmp_path)
    made = [
        load_record(setting, rate, [1.0, 1.0], [speed, speed], processor=f"CPU {rate:g}")
        for setting, rate, speed in (("f16", 1.0, 10.0), ("q8_0", 1.0, 20.0), ("f16", 4.0, 40.0))
    ]
    moved = load_record("q8_0", 4.0, [1.0, 1.0], [8.0, 8.0], processor="CPU 1")
    joined = read_serve(write(tmp_path / "moved", [*made, moved]), [answers])["tables"]["0"]
    speeds = {row["cells"][0]: row["cells"][joined["header"].index("× baseline")] for row in joined["rows"]}
    assert speeds["q8_0 · 1 at once"].startswith("2.00") and speeds["q8_0 · 4 at once"] == "–"
    assert joined["notes"][-1].startswith("the loads differ in machine: 'CPU 1' or 'CPU 4'; × baseline is over loads")


def test_the_plot_may_have_each_load_across(tmp_path):
    _, loads = served_runs(tmp_path)
    across = {one["text"]: one["of"] for one in read_serve(loads, [])["across"]}
    assert across["tokens/s served, 4 at once"] == {"f16": 200, "q8_0": 240, "q4_0": 200}
    assert across["first token in ms, 1 at once"] == {"f16": 100, "q8_0": 90, "q4_0": 200}


def test_runs_of_loads_join_the_page_of_others_and_make_one_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    answers, loads = served_runs(tmp_path)
    assert kvbench("report", "answers", "loads") == kvbench("report", "loads") == 0
    together, alone = (blocks(path.read_text()) for path in (tmp_path / "report.html", loads / "report.html"))
    assert together["runs"] == ["answers"] and together["serves"] == [read_serve(loads, [answers])]
    assert alone["runs"] == [] and alone["serves"] == [read_serve(loads, [])] and "run-0" not in alone
