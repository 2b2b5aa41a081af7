"""The picture of a run: its score against bytes."""

import math

import pandas as pd
import pytest

from kvbench.records import load
from kvbench.report.figures.score import COLUMNS, MOST_NAMED, score_figure
from kvbench.runner import run_figures
from tests.support.figure_records import colour, legend, texts
from tests.support.page import grid_run

NONE = math.nan
ROWS = [
    ("full", 1.0, 0.9, 0.8, 0.95),
    ("snapkv", 0.4, 0.7, 0.6, 0.8),
    ("snapkv", 0.2, 0.5, 0.4, 0.6),
    ("kivi", 0.3, 0.6, NONE, NONE),
]


def drawn(figure):
    return [axis for part in figure.subfigs for axis in part.axes]


def test_methods_are_lines_with_intervals_and_names():
    figure = score_figure({"score": pd.DataFrame(ROWS, columns=COLUMNS)}, "r_bytes", "caption")
    (axis,) = drawn(figure)
    lines = {line.get_color(): line for line in axis.lines if line.get_marker() != "None"}
    assert {*lines} == {"black", colour("snapkv"), colour("kivi")}
    assert lines[colour("snapkv")].get_xdata().tolist() == [0.2, 0.4]
    assert lines[colour("kivi")].get_linestyle() == "None"
    (across,) = [line for line in axis.lines if line.get_marker() == "None"]
    assert list(across.get_ydata()) == [0.9, 0.9]  # FullKV's score
    ends = sorted(tuple(path.vertices[:, 1]) for lines in axis.collections for path in lines.get_paths())
    assert ends[:3] == [(0.4, 0.6), (0.6, 0.8), (0.8, 0.95)]
    assert {text.get_text(): text.get_color() for text in axis.texts} == {
        "FullKV": "black",
        "SnapKV": colour("snapkv"),
        "KIVI": colour("kivi"),
    }
    bottom, top = axis.get_ylim()
    assert bottom < 0.4 and top > 0.95 and axis.get_xlim() == (0, 1.04)


def test_intervals_stand_at_their_marks_and_beside_others_only_where_these_are():
    """With 18 methods each interval stood up to 0.03 of FullKV's bytes beside its mark, alone or not."""
    rows = [(f"method_{i}", 0.5, 0.5, 0.4, 0.6) for i in range(17)]
    figure = score_figure({"score": pd.DataFrame([*ROWS[:2], *rows], columns=COLUMNS)}, "r_bytes", "caption")
    (axis,) = drawn(figure)
    moved = {}
    for lines in axis.collections:
        (path,) = lines.get_paths()
        shift = lines.get_transform().transform(path.vertices[0]) - axis.transData.transform(path.vertices[0])
        moved.setdefault(path.vertices[0, 0], []).append(round(float(shift[0]), 3))
    assert moved[1.0] == moved[0.4] == [0] and len({*moved[0.5]}) == 17 and abs(sum(moved[0.5])) < 0.01


def test_many_methods_have_a_legend():
    rows = [(f"method_{i}", 0.5, i / 30, NONE, NONE) for i in range(MOST_NAMED + 1)]
    figure = score_figure({"score": pd.DataFrame(rows, columns=COLUMNS)}, "r_bytes", "caption")
    assert len(legend(figure)) == MOST_NAMED + 1 and not drawn(figure)[0].texts


@pytest.mark.heavy
def test_the_first_metric_has_a_panel_and_the_divergence_another(tmp_path, monkeypatch):
    figures = []
    monkeypatch.setattr("kvbench.report.figures.style.save", lambda figure, path: [figures.append(figure) or path])
    records = load(grid_run(tmp_path))
    records["scores"] = [scores | {"kl": 0.1} for scores in records["scores"]]
    metrics = list(records["scores"].iloc[0])
    run_figures.score(records, metrics, tmp_path / "score", "caption")
    labels = [axis.get_ylabel() for axis in drawn(figures[0])]
    assert labels == [f"{metrics[0]} (0 to 1, more is better)", "kl (nats per token, less is better)"]
    assert "share of FullKV's bytes" in texts(figures[0])
    run_figures.score(records[1:], metrics, tmp_path / "score", "caption")
    assert ["settings have different samples" in texts(figure) for figure in figures] == [False, True]
    without = records.assign(r_bytes=NONE, r_bytes_16=NONE)
    assert run_figures.score(without, metrics, tmp_path / "score", "caption") == []
