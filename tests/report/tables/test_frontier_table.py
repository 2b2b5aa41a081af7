"""The table of frontiers and its sentence."""

import math

from kvbench.metrics.aggregate import bounds
from kvbench.metrics.frontier import Point, frontier, point
from kvbench.report.tables.frontier_table import frontier_table, recommendation, replaced, write_frontier


def method(name, *differences, ratios=(0.5, 0.25, 0.125), spread=0.0):
    pairs = zip(ratios, differences, strict=False)
    return frontier(
        [Point(f"{name} {ratio}", ratio, ratio, mean, mean - spread, mean + spread) for ratio, mean in pairs], 0.04
    )


FALLING, FLAT = method("snapkv", 0, 0, -0.5), method("knorm", 0, 0, 0)
FAILING = method("streaming_llm", -0.1, -0.2, -0.5, spread=0.02)
GAP = method("h2o", 0, -0.3, 0)


def cells(**frontiers):
    return {row[0]: row[1:] for row in frontier_table(frontiers, 0.8, "").rows}


def test_the_fewest_bytes_come_first_and_failures_last():
    table = frontier_table({"streaming_llm": FAILING, "snapkv": FALLING, "knorm": FLAT}, 0.8, "")
    assert [row[0] for row in table.rows] == ["KNorm", "SnapKV", "StreamingLLM"]


def test_what_is_held_possible_and_left_open():
    rows = cells(snapkv=FALLING, knorm=FLAT, streaming_llm=FAILING, h2o=GAP, kivi=method("kivi", 0, ratios=(1.0,)))
    assert rows["SnapKV"] == ["0.250", "0.250", "0.25", "0.800", "3"]
    assert rows["KNorm"] == ["≤ 0.125", "≤ 0.125", "0.125", "0.800", "3"]
    assert rows["StreamingLLM"] == ["–", "–", "–", "–", "3"]
    assert rows["H2O"][0] == "0.500§"
    assert rows["KIVI"] == ["1.000", "1.000", "–", "0.800", "1"]


def test_each_mark_in_the_table_has_its_note_and_no_other():
    assert len(frontier_table({"snapkv": FALLING}, 0.8, "").notes) == 1
    notes = frontier_table({"knorm": FLAT, "h2o": GAP, "streaming_llm": FAILING}, 0.8, "").notes
    assert [note[0] for note in notes[1:]] == ["≤", "§", "–"]
    unsure = {"snapkv": method("snapkv", 0, -0.05, -0.05, spread=0.03)}  # held at the first ratio, possible at the last
    assert cells(**unsure)["SnapKV"][:2] == ["0.500", "≤ 0.125"]
    assert [note[0] for note in frontier_table(unsure, 0.8, "").notes[1:]] == ["≤"]


def test_where_layers_have_a_sliding_window_the_table_says_below_what_no_method_comes():
    notes = frontier_table({"snapkv": FALLING}, 0.8, "", floor=0.3844).notes
    assert [note for note in notes if "no method can go below 0.384" in note]


def test_a_frontier_of_other_methods_or_of_something_else_is_named_before_it_is_replaced(tmp_path):
    both = {"snapkv": FALLING, "knorm": FLAT}
    assert replaced(tmp_path, "digits", both) == ""
    write_frontier(both, 0.8, frontier_table(both, 0.8, "digits"), "", tmp_path)
    assert replaced(tmp_path, "digits", both) == "" == replaced(tmp_path, "digits", [*both, "h2o"])
    said = f"{tmp_path / 'frontier.md'} is replaced: it had KNorm, SnapKV (digits); all records stay"
    assert replaced(tmp_path, "digits", ["snapkv"]) == said == replaced(tmp_path, "exact", both)
    (tmp_path / "frontier.md").write_text("")
    assert replaced(tmp_path, "digits", both).startswith(f"{tmp_path / 'frontier.md'} is replaced")


def test_the_sentence_names_the_method_its_bytes_and_what_cannot_be_told_from_it():
    unsure = method("h2o", 0, -0.05, -0.05, spread=0.03)
    text = recommendation({"snapkv": FALLING, "h2o": unsure}, 0.8, 0.95, "score", "20 samples")
    assert text == (
        "On 20 samples SnapKV certainly keeps 95 % of FullKV's score in 0.250 of FullKV's bytes (SnapKV 0.25), "
        "possibly in 0.250: fewer than any other method. By these samples H2O may need as few. "
        "It is the best of 2 methods by these samples, which favours a lucky one: confirm it on others."
    )
    alone = recommendation({"knorm": FLAT}, 0.8, 0.95, "score", "20 samples")
    assert "at most 0.125" in alone and "lucky" not in alone


def test_methods_with_as_few_bytes_are_named_and_fewer_is_said_of_others_alone():
    same = {"snapkv": FALLING, "knorm": method("knorm", 0, 0, -0.5)}

    def end(**frontiers):
        return (
            recommendation(frontiers, 0.8, 0.95, "score", "20 samples")
            .partition("possibly in 0.250")[2]
            .partition(" It is")[0]
        )

    assert end(**same) == ": as few as KNorm."
    assert end(**same, streaming_llm=FAILING) == ": as few as KNorm, and fewer than any other method."
    assert end(snapkv=FALLING) == "."


def test_where_nothing_is_certain_the_sentence_says_how_much_is_missing():
    text = recommendation({"streaming_llm": FAILING}, 0.8, 0.95, "score", "5 samples")
    assert (
        "no method certainly keeps 95 % of FullKV's score: the best setting with the most bytes may lose 0.120," in text
    )
    assert text.endswith(
        "the margin is 0.040. It takes at least 76 texts or problems to show that no more is lost, even where none is."
    )


def test_a_setting_that_holds_below_one_that_does_not_is_marked_and_not_what_is_missing():
    """The sentence said that 0.000 may be lost, of a margin of 0.040."""
    frontiers = {"h2o": method("h2o", -0.1, 0, 0)}
    assert cells(**frontiers)["H2O"][0] == "–§"
    text = recommendation(frontiers, 0.8, 0.95, "score", "64 samples")
    assert "the best setting with the most bytes may lose 0.100, the margin is 0.040" in text


def test_nothing_is_certain_of_a_baseline_that_fails_itself_or_without_intervals():
    held = {"snapkv": frontier([Point("snapkv 0.5", 0.5, 0.5, 0.0, 0.0, 0.1)], 0.0)}
    text = recommendation(held, 0.0, 0.95, "score", "5 samples")
    assert text == (
        "On 5 samples FullKV's own score is 0: no setting can be worse, so none is shown to keep a share of it."
    )
    unknown = {"snapkv": frontier([Point("snapkv 0.5", 0.5, 0.5, 0.0, math.nan, math.nan)], 0.04)}
    text = recommendation(unknown, 0.8, 0.95, "score", "5 samples")
    assert "as there is no interval: a task with a single text (give each at least two" in text


def test_nothing_is_certain_of_three_samples_that_all_agree():
    agreed = point("snapkv 0.5", 0.5, [0.5] * 3, [1.0] * 3, [1.0] * 3, ["all"] * 3, bounds=bounds("top1"))
    text = recommendation({"snapkv": frontier([agreed], 0.1)}, 1.0, 0.9, "top1", "3 samples")
    assert (
        text.startswith("On 3 samples no method certainly keeps 90 % of FullKV's top1")
        and "It takes at least 31 texts" in text
    )
