"""Tables of a run's page: scores by task."""

import pandas as pd
import pytest

from kvbench.report.figures.needle_heatmap import heatmaps
from kvbench.report.page.run_data import read_run
from kvbench.report.tables.agreement import measure_text
from tests.support.figure_records import panels
from tests.support.page import opened_page
from tests.support.report_run import record, write_run


def test_samples_without_an_answer_are_in_no_tasks_score(tmp_path):
    """The page of several tasks, some of whose samples had no known answer, was a KeyError."""
    rows = [record("qa-2", "h2o 0.2", 0.0, task="qa") | {"scores": {}}]  # a setting that has no other sample
    rows += [
        record(f"{task}-{i}", setting, float(i), task=task) | ({} if i < 2 else {"scores": {}})
        for task in ("qa", "code")
        for i in range(3)
        for setting in ("full", "snapkv 0.2")
    ]
    (by_task,) = read_run(write_run(tmp_path / "run", rows))[0]["tasks"]
    assert [(row["task"], row["samples"], row["scores"]) for row in by_task["rows"]] == [
        ("qa", 2, [None, 0.5, 0.5]),
        ("code", 2, [None, 0.5, 0.5]),
        ("mean", 4, [None, 0.5, 0.5]),
    ]


def test_samples_without_a_task_are_one_more_task(tmp_path):
    """They are in the setting's score; the mean over the tasks left them out, as "mean (2 of 3)"."""
    tasks = {"qa": 1.0, "code": 0.5, None: 0.0}
    rows = [record(f"{task}-{i}", "full", score, task=task) for task, score in tasks.items() for i in range(2)]
    made, _ = read_run(write_run(tmp_path / "run", rows))
    assert [(row["task"], row["samples"], row["scores"]) for row in made["tasks"][0]["rows"]] == [
        ("qa", 2, [1.0]),
        ("code", 2, [0.5]),
        ("without a task", 2, [0.0]),
        ("mean", 6, [0.5]),
    ]
    assert made["settings"][0]["scores"]["score"][0] == 0.5


@pytest.mark.parametrize("kl", [1.4e-5, -9.6e-5, 0.00012, 2.345678, 0.0, 3e-9])
def test_a_small_divergence_is_the_same_on_the_page_as_in_the_table(tmp_path, kl):
    rows = [record(f"s{i}", "knorm 0.2", 1.0, distance={"kl": kl}) for i in range(2)]
    made, _ = read_run(write_run(tmp_path / "run", rows))
    (setting,) = made["settings"]
    for shown in (setting["scores"]["kl"][0], made["records"]["scores"]["kl"][0]):
        assert measure_text("kl", shown) == measure_text("kl", kl)


def test_lengths_of_a_million_tokens_have_every_digit(tmp_path):
    rows = [
        record(f"{length}-{depth}-{i}", "full", 1.0, task="niah", length=length, depth=depth)
        for length in (1048576, 2097152)
        for depth in (0, 12.5)
        for i in range(2)
    ]
    by_length, by_depth = read_run(write_run(tmp_path / "run", rows))[0]["tasks"]
    assert [row["task"] for row in by_length["rows"][:2]] == ["niah · 1048576", "niah · 2097152"]
    assert [row["task"] for row in by_depth["rows"][:2]] == ["niah · 0", "niah · 12.5"]
    (panel,) = panels(heatmaps(pd.DataFrame(rows), "score", "caption"))
    assert [text.get_text() for text in panel.get_xticklabels()] == ["1048576", "2097152"]


@pytest.mark.heavy
def test_the_page_shows_every_digit_of_whole_numbers(driver, tmp_path):
    rows = [
        record(f"needle-{depth}", "full", 1.0, length=1048576, depth=depth, prompt_tokens=1048577)
        for depth in (0, 12.5)
    ]
    page = opened_page(driver, [write_run(tmp_path / "long", rows)], "#heatmaps table")
    assert [text for text in page.texts("#heatmaps th") if text] == ["1048576", "0", "12.5"]
    assert page.column("samples", 3) == ["1048577"] * 2
