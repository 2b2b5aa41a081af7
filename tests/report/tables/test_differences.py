"""Differences between any two settings of a run."""

import numpy as np
import pandas as pd
import pytest

from kvbench.metrics.bootstrap import paired_interval
from kvbench.report.tables import differences
from kvbench.report.tables.differences import (
    against,
    alone_note,
    baseline_alone,
    difference_table,
    floor_note,
    full_of,
    pairs,
    write_differences,
)
from kvbench.runner.outputs import write_comparison

SCORES = {
    "full": [1.0, 1.0, 0.8, 1.0, 0.9, 1.0],
    "snapkv 0.2": [0.5, 1.0, 0.9, 0.2, 0.6, 0.7],
    "h2o 0.2": [1.0, 1.0, 0.8, 1.0, 0.9, 1.0],
}


def records(scores=SCORES, **columns) -> pd.DataFrame:
    """One row per setting and sample; `columns` have a value per sample."""
    return pd.DataFrame(
        [
            {"setting": setting, "method": setting.split()[0], "sample": f"s{i}", "scores": {"score": value}}
            | {name: values[i] for name, values in columns.items()}
            for setting, of in scores.items()
            for i, value in enumerate(of)
            if value is not None
        ]
    )


def test_each_two_settings_are_compared_on_their_samples():
    every = pairs(records(), "score")
    assert list(zip(every["setting"], every["baseline"], strict=True)) == [
        ("full", "snapkv 0.2"),
        ("full", "h2o 0.2"),
        ("snapkv 0.2", "h2o 0.2"),
    ]
    first = every.iloc[0]
    differences = np.subtract(SCORES["full"], SCORES["snapkv 0.2"])
    assert first["difference"] == pytest.approx(differences.mean())
    assert [first[name] for name in ("wins", "ties", "losses", "samples", "units")] == [4, 1, 1, 6, 6]
    assert (first["low"], first["high"]) == paired_interval(
        SCORES["full"], SCORES["snapkv 0.2"], clusters=[str(i) for i in range(6)]
    )
    # of 2^5 signs of +0.5 -0.1 +0.8 +0.3 +0.3: those found, all of one sign, and both turned
    assert first["p"] == 4 / 32
    equal = every.iloc[1]
    assert (equal["difference"], equal["p"], equal["ties"]) == (0, 1, 6)
    assert equal["low"] < -0.1 and equal["high"] > 0.1  # six ties do not show that all are


def test_a_baseline_is_subtracted_wherever_it_stands():
    compared = against(pairs(records(), "score"), "h2o 0.2")
    assert compared["setting"].tolist() == ["full", "snapkv 0.2"]
    row, other = compared.iloc[1], against(pairs(records(), "score"), "snapkv 0.2").iloc[1]
    assert (row["difference"], row["low"], row["high"]) == (-other["difference"], -other["high"], -other["low"])
    assert (row["wins"], row["losses"]) == (1, 4) == (other["losses"], other["wins"])
    assert row["p_holm"] == 2 * row["p"]  # of two comparisons, not of all three


@pytest.mark.parametrize("name", ["unit", "context_id"])
def test_samples_about_one_text_are_one_unit(name):
    together = records(
        {setting: np.repeat(values, 4) for setting, values in SCORES.items()}, **{name: np.repeat([*"abcdef"], 4)}
    )
    alone, shared = pairs(records(), "score").iloc[0], pairs(together, "score").iloc[0]
    assert (shared["samples"], shared["units"]) == (24, 6)
    assert (shared["p"], shared["error"]) == pytest.approx((alone["p"], alone["error"]))


def test_only_samples_that_both_have_count_and_each_task_counts_once():
    partly = records({"full": [1.0, 1.0, 1.0, None], "knorm 0.2": [0.0, 1.0, None, 1.0]})
    assert [pairs(partly, "score").iloc[0][name] for name in ("difference", "samples")] == [0.5, 2]
    of_tasks = records({"full": [1, 1, 1, 1], "knorm 0.2": [0, 0, 0, 1]}, task=["a", "b", "b", "b"])
    assert pairs(of_tasks, "score")["difference"][0] == pytest.approx((1 + 2 / 3) / 2)
    apart = records({"full": [1.0, None], "knorm 0.2": [None, 1.0]})
    assert pairs(apart, "score").empty and against(pairs(apart, "score"), "full").empty


def test_distances_that_do_not_vary_have_no_interval():
    frame = records().assign(scores=[{"kl": 0.0} for _ in records()["scores"]])
    compared = against(pairs(frame, "kl"), "full")
    assert compared["low"].isna().all()
    table = difference_table(compared, "kl")
    assert table.rows[0][2] == "–" and table.notes[1] == "–: no interval, as distances do not vary"


def test_a_task_with_one_text_has_no_interval_and_the_note_says_what_gives_it_one():
    """Six samples of two tasks, each about one text."""
    frame = records(task=[*"aaabbb"], context_id=[*"xxxyyy"])
    table = difference_table(against(pairs(frame, "score"), "full"), "score")
    assert table.rows[0][2] == "–"
    assert table.notes[1] == (
        "–: no interval, as a task has a single such text or problem: give each task at least two texts, "
        "or leave task out"
    )
    alike = records(context_id=["x"] * 6)
    assert (
        "over one text or problem; Holm" in difference_table(against(pairs(alike, "score"), "full"), "score").notes[0]
    )


def test_a_distance_from_fullkv_is_bounded_by_what_fullkv_has_by_definition():
    agreed = {"full": [1.0] * 6, "snapkv 0.2": [0.9, 0.8, 0.8, 0.7, 0.8, 0.9], "h2o 0.2": [1.0] * 6}
    frame = records(agreed).assign(scores=lambda frame: [{"top1": one["score"]} for one in frame["scores"]])
    compared = against(pairs(frame, "top1"), "full")
    assert (compared["high"] <= 0).all() and compared["high"][0] < 0  # no setting agrees with FullKV more than itself
    assert (
        compared["low"][1] < -0.2 and compared["high"][1] == 0
    )  # six samples of equal tokens do not show that all are


def test_a_baseline_at_the_floor_is_told():
    none = records({"full": [0.0] * 6, "snapkv 0.2": [0.0] * 6})
    compared = against(pairs(none, "score"), "full")
    assert "FullKV's own score is 0.000: no setting can be worse" in difference_table(compared, "score").notes[-1]
    assert len(difference_table(against(pairs(records(), "score"), "full"), "score").notes) == 1
    few = against(pairs(records({"full": [0.0] * 5 + [0.1], "snapkv 0.2": [0.0] * 6}), "score"), "full")
    assert not floor_note(few, "score") and "lose more than 0.02" in floor_note(few, "score", 0.02)
    equal = records().assign(scores=[{"kl": 0.0} for _ in records()["scores"]])
    assert not floor_note(against(pairs(equal, "kl"), "full"), "kl")  # there 0 is the best


def test_less_is_better_for_divergences():
    frame = records().assign(scores=[{"kl": scores["score"]} for scores in records()["scores"]])
    assert [pairs(frame, "kl").iloc[0][name] for name in ("wins", "losses")] == [1, 4]


def test_the_table_says_what_was_drawn(tmp_path):
    compared = against(pairs(records(), "score"), full_of(records()))
    table = difference_table(compared, "score", {"verdict": ["broken", "undecided"]})
    assert table.title == "score: difference from FullKV"
    assert table.rows[0][:2] == ["SnapKV 0.2", "-0.300"] and table.rows[0][-1] == "broken"
    assert table.rows[1][2].startswith("-0.5") and len(table.notes) == 1
    assert "all sign flips, over 6 texts or problems" in table.notes[0] and "for 2 comparisons" in table.notes[0]
    (path,) = write_differences(compared, tmp_path)
    assert len(path.read_text().splitlines()) == 3


@pytest.mark.parametrize("baseline", SCORES)
def test_pairs_of_one_setting_alone_are_those_among_all(baseline):
    many = records({setting: np.repeat(values, 4) for setting, values in SCORES.items()})  # too many for all sign flips
    for frame in (records(), many):
        alone = pairs(frame, "score", baseline)
        assert len(alone) == 2 and (alone[["setting", "baseline"]] == baseline).any(axis=1).all()
        every = pairs(frame, "score")
        pd.testing.assert_frame_equal(against(alone, baseline), against(every, baseline), check_exact=True)


def test_a_report_of_more_settings_compares_them_with_one_and_says_so(monkeypatch, tmp_path):
    assert baseline_alone(records()) is None and not alone_note(records())
    monkeypatch.setattr(differences, "EVERY_TWO", 2)
    assert baseline_alone(records()) == "full"
    without = records().query("setting != 'full'")
    assert baseline_alone(without) is None  # two settings
    assert baseline_alone(without.assign(setting=without["setting"] + without["sample"])) == "snapkv 0.2s0"
    for name in ("table.md", "table.tex"):
        (tmp_path / name).write_text("")
    (path,) = write_comparison(records(), pairs(records(), "score", "full"), "score", tmp_path)
    assert len(path.read_text().splitlines()) == 3
    note = "of 3 settings only pairs with FullKV are given: every two are up to 2 settings"
    assert alone_note(records()) == note and note in (tmp_path / "table.md").read_text()


def test_a_comparison_over_few_units_among_others_over_many_has_all_sign_flips():
    uneven = {"full": [1.0] * 30, "h2o 0.2": [0.5] * 30, "snapkv 0.2": [0.5] * 7 + [1.0] + [None] * 22}
    compared = against(pairs(records(uneven), "score"), "full")
    few = compared[compared["setting"] == "snapkv 0.2"].iloc[0]
    alone = {name: values[:8] for name, values in uneven.items()}
    assert few["units"] == 8 and few["p"] == 2 * 2 / 2**8  # the sample without a difference has either sign
    assert few["p"] == against(pairs(records(alone), "score"), "full").iloc[-1]["p"]
    note = difference_table(compared, "score").notes[0]
    assert "p by all sign flips up to 14 units and random ones for more, over 8 to 30 texts" in note
