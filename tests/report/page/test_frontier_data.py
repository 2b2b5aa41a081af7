"""What the page reads from the files of `kvbench frontier`."""

import pytest

from kvbench.report.page.frontier_data import read_frontier
from tests.support.page import frontier_files


def test_table_sentence_and_points_are_those_that_were_written(tmp_path):
    frontier_files(tmp_path)
    made = read_frontier(tmp_path)
    assert made["header"] == ["method", "held", "possible", "ratio", "score there", "settings"]
    assert made["rows"] == [["SnapKV", "0.400", "0.400", "0.4", "0.890", "2"], ["H2O", "–", "≤ 0.200", "–", "–", "1"]]
    assert made["sentence"].startswith("On 120 samples SnapKV certainly keeps") and made["caption"] == "grid · tiny"
    assert [note[:5] for note in made["notes"]] == ["held:", "≤ the", "– not"]
    assert (made["full"], made["least"]) == (0.9, 0.85)
    first, _, last = made["points"]
    assert first == {
        **{"label": "SnapKV 0.4", "method": "snapkv", "title": "SnapKV", "r_bytes": 0.4, "held": True},
        "scores": {"score": [0.89, 0.88, 0.9]},
    }
    assert last["scores"]["score"] == [0.6, None, None]


def test_bounds_of_a_difference_are_scores_and_end_at_0_and_1(tmp_path):
    frontier_files(tmp_path)
    path = tmp_path / "frontier.csv"
    path.write_text(
        path.read_text(encoding="utf-8").replace(",-0.01,-0.02,0.0,", ",-0.01,-0.95,0.2,"), encoding="utf-8"
    )
    assert read_frontier(tmp_path)["points"][0]["scores"]["score"] == [0.89, 0, 1]


def test_names_with_bars_stay_whole(tmp_path):
    frontier_files(tmp_path)
    path = tmp_path / "frontier.md"
    path.write_text(path.read_text(encoding="utf-8").replace("| H2O |", r"| a \| b |"), encoding="utf-8")
    assert read_frontier(tmp_path)["rows"][1][0] == "a | b"
    path.write_text(path.read_text(encoding="utf-8").replace(r"| a \| b |", r"| \<x> \*y* |"), encoding="utf-8")
    assert read_frontier(tmp_path)["rows"][1][0] == "<x> *y*"


def test_a_folder_without_a_frontier_has_none(tmp_path):
    assert read_frontier(tmp_path) is None


@pytest.mark.parametrize(("name", "text"), [("csv", ""), ("csv", "method,held\nsnapkv,True\n"), ("md", "a | b")])
def test_damaged_files_are_reported_and_left_out(tmp_path, capsys, name, text):
    frontier_files(tmp_path)
    (tmp_path / f"frontier.{name}").write_text(text, encoding="utf-8")
    assert read_frontier(tmp_path) is None
    assert "cannot be read and is left out" in capsys.readouterr().err
