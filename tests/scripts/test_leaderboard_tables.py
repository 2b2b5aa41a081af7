"""scripts/results/leaderboard_tables.py: settings within a target of bytes, and ranks with ties."""

import math

import pandas as pd
import pytest

from kvbench.runner.leaderboard.ranks import above, within
from scripts.results import leaderboard_tables
from scripts.results.leaderboard_tables import (
    FACTS,
    Board,
    by_task,
    complete,
    enough,
    figure,
    least_bytes,
    report,
    settings_of,
    table,
)
from tests.support.figure_records import texts

SCORES = {"full": [1, 1, 1, 1], "good": [1, 1, 1, 1], "close": [1, 0.9, 1, 0.9], "bad": [0, 0, 0, 0]}


def records(
    sizes=(("full", 1.0), ("good", 0.2), ("close", 0.21), ("bad", 0.1), ("bad", 0.19), ("large", 0.6)), times=1
):
    rows = []
    for method, size in sizes:
        for number, score in enumerate(SCORES.get(method, [0.5] * 4) * times):
            row = {"sample": str(number), "unit": f"text {number}", "method": method, "setting": f"{method} {size}"}
            rows.append(row | {"task": "needles", "r_bytes": size, "scores": {"digits": score}})
    return pd.DataFrame(rows)


def test_a_sample_that_a_setting_lacks_counts_for_none():
    some = records().drop(index=3)  # FullKV's last
    settings = settings_of(some, "digits").set_index("setting")
    assert set(settings["samples"]) == {3}
    assert settings.loc["close 0.21", "score"] == 2.9 / 3


def test_a_score_is_the_mean_over_tasks_and_a_task_with_a_single_sample_leaves_no_interval():
    some = records().assign(task=["needles", "needles", "needles", "words"] * 6)
    row = settings_of(some, "digits").set_index("setting").loc["close 0.21"]
    assert row["score"] == pytest.approx((2.9 / 3 + 0.9) / 2) and math.isnan(row["low"])
    many = settings_of(
        pd.concat([some, some.assign(sample=some["sample"] + "b", unit=some["unit"] + "b")], ignore_index=True),
        "digits",
    )
    row = many.set_index("setting").loc["close 0.21"]
    assert row["score"] == pytest.approx((2.9 / 3 + 0.9) / 2) and row["low"] < row["score"] < row["high"]


def test_each_method_has_its_largest_setting_within_the_target_and_equal_ranks_where_intervals_overlap():
    settings = settings_of(records(times=3), "digits")
    best = within(settings, 0.2)
    assert dict(best["setting"]) == {"full": "full 1.0", "good": "good 0.2", "close": "close 0.21", "bad": "bad 0.19"}
    assert dict(best["rank"]) == {"full": 1, "good": 1, "close": 1, "bad": 4}
    assert dict(above(settings, 0.2)["method"].value_counts()) == {"large": 1}


def test_a_table_has_methods_by_their_mean_over_the_parts_and_a_dash_where_one_is_missing():
    parts = {"one": settings_of(records(), "digits"), "other": settings_of(records((("full", 1.0),)), "digits")}
    made = table(parts, 0.2, "## r_bytes up to 0.2")
    assert [row[0] for row in made.rows] == ["full", "good", "close", "bad"]
    assert made.rows[1][4:] == ["–"] * 3
    assert made.header[:2] == ["method", "one: r_bytes"]


def test_the_figure_has_titles_and_says_what_white_is_and_fullkv_only_above():
    parts = {"needles_hidden": settings_of(records((("full", 1.0), ("snapkv", 0.2), ("kivi", 0.4))), "digits")}
    made = figure(parts, (0.2, 0.4), "caption")
    axis = made.subfigs[0].axes[0]
    assert sorted(tick.get_text() for tick in axis.get_yticklabels()) == ["KIVI", "SnapKV"]
    assert axis.get_title() == "needles hidden\nFullKV: 1.00"
    assert len(axis.texts) == 3  # none in the white cell
    assert "White: no setting of the method is within it" in " ".join(texts(made).split())


def test_the_least_bytes_are_of_settings_that_lose_little_on_the_same_samples():
    sizes = (("full", 1.0), ("good", 0.5), ("good", 0.2), ("close", 0.21), ("bad", 0.1), ("large", 0.6))
    settings = settings_of(records(sizes, times=30), "digits")
    assert dict(enough(settings)["setting"]) == {"good": "good 0.2", "close": "close 0.21"}
    assert enough(settings_of(records(sizes), "digits")).empty  # four samples show no loss below 0.1
    made = least_bytes({"visible_4k": settings, "hidden_4k": settings_of(records(sizes[:1]), "digits")})
    assert [row[:2] for row in made.rows] == [["good", "0.200"], ["close", "0.210"]] and made.rows[0][3] == "–"


def test_tasks_have_their_means_and_counts_and_methods_go_by_the_mean_over_tasks():
    some = records().assign(task=["needles", "needles", "needles", "words"] * 6)
    made = by_task(complete(some, "digits"), within(settings_of(some, "digits"), 0.2), "title")
    assert made.header == ["method", "needles (3)", "words (1)"]
    # 1, 0.9, 1 and 0.9
    assert made.rows == [
        ["full", *["1.00"] * 2],
        ["good", *["1.00"] * 2],
        ["close", "0.97", "0.90"],
        ["bad", *["0.00"] * 2],
    ]


def test_a_report_has_tables_of_targets_that_a_method_meets_and_of_tasks_where_there_are_several(monkeypatch, tmp_path):
    runs = {"needles": records(), "ruler": records().assign(task=["one", "two"] * 12)}
    for name in runs:
        (tmp_path / "runs" / name / "x").mkdir(parents=True)
        (tmp_path / "runs" / name / "x" / "records.jsonl").write_text("{}")
    monkeypatch.setattr(leaderboard_tables, "load", lambda folder: runs[folder.name].assign(model="tiny"))
    monkeypatch.setattr(leaderboard_tables, "manifests", lambda *folders: pd.DataFrame([dict.fromkeys(FACTS, "x")]))
    report(tmp_path / "runs", tmp_path / "made", (0.01, 0.2), Board("tiny", dict.fromkeys(runs, "digits")))
    headings = [line for line in (tmp_path / "made/leaderboard.md").read_text().splitlines() if line.startswith("#")]
    assert headings == [
        "## r_bytes up to 0.2",
        "## ruler: tasks (samples), r_bytes up to 0.2",
        "## Methods that need more than 0.2, ranked among themselves",
    ]
