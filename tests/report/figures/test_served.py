"""Score lost against tokens a second."""

import pandas as pd

from kvbench.report.figures.served import served_figure
from tests.support.figure_records import legend

NONE = float("nan")
COLUMNS = "setting load rate tokens_per_s tokens_per_s_low tokens_per_s_high difference low high".split()


def test_settings_that_lose_and_give_the_same_have_names_that_do_not_cover_each_other():
    names = ["f16", "q8_0", "q8_0/q4_0"]
    rows = [(name, "8 at once", 8.0, 100.0, NONE, NONE, 0.0, NONE, NONE) for name in names]
    figure = served_figure(pd.DataFrame(rows, columns=COLUMNS).assign(profile="concurrent"), "score", "f16")
    assert legend(figure) == names
    (axis,) = [axis for part in figure.subfigs for axis in part.axes]
    assert not axis.texts and len({line.get_marker() for line in axis.lines[:3]}) == 3
