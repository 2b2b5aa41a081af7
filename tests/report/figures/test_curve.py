"""Curves of score against compression."""

import numpy as np
import pandas as pd
import pytest

from kvbench.report.figures.curve import FULL, MEASURED_COLUMNS, PUBLISHED_COLUMNS, curves
from tests.support.figure_records import CAPTION, legend, panels


def points(*columns: str, low=30.0) -> tuple[pd.DataFrame, pd.DataFrame]:
    mine = [(column, FULL, np.nan, 1.0, 50.0, 45.0, 55.0) for column in columns]
    mine += [(c, m, x, 3 * x, 40 + x, low, 45.0) for c in columns for m in ("a", "b") for x in (0.4, 0.2)]
    paper = [(column, FULL, np.nan, 60.0) for column in columns]
    paper += [(column, "a", x, 48 + x) for column in columns for x in (0.3, 0.1)]
    return pd.DataFrame(mine, columns=MEASURED_COLUMNS), pd.DataFrame(paper, columns=PUBLISHED_COLUMNS)


def test_a_curve_is_drawn_against_r_and_against_bytes_beside_the_published_one():
    figure = curves(*points("average"), "r (reserve ratio)", "Table 1, big-model", CAPTION)
    against_r, against_bytes = panels(figure)
    assert against_r.get_xlabel() == "r (reserve ratio)" and "r_bytes" in against_bytes.get_xlabel()
    assert {axis.get_ylabel() for axis in (against_r, against_bytes)} == {"score (0 to 100)"}
    assert legend(figure) == ["a", "b", "FullKV", "published: Table 1, big-model", "95 % interval"]

    full, a, b, printed_full, printed = against_r.lines
    assert list(a.get_xdata()) == [0.2, 0.4] and list(a.get_ydata()) == [40.2, 40.4]
    assert list(printed.get_xdata()) == [0.1, 0.3] and list(printed.get_ydata()) == [48.1, 48.3]
    assert set(full.get_ydata()) == {50} and set(printed_full.get_ydata()) == {60}
    assert printed.get_marker() == a.get_marker() != b.get_marker()
    assert a.get_color() != b.get_color() and printed.get_markerfacecolor() == "white"
    assert len(against_bytes.lines) == 3
    assert list(against_bytes.lines[1].get_xdata()) == pytest.approx([0.6, 1.2])
    bar = against_r.collections[0].get_segments()[0]
    assert [y for _, y in bar] == [30, 45]
    low, high = against_r.get_ylim()
    assert low < 30 and high > 60


def test_without_intervals_and_published_numbers_the_legend_names_neither():
    mine, paper = points("trec", "average", low=np.nan)
    figure = curves(mine, paper.iloc[:0], "l0", "", CAPTION)
    assert legend(figure) == ["a", "b", "FullKV"]
    assert [axis.get_title() for axis in panels(figure)] == ["trec", "average", "average"]
    assert not any(len(of.get_segments()) for axis in panels(figure) for of in axis.collections)
