"""Values of probes, layer by layer."""

import pytest

from kvbench.report.figures.layer_lines import by_layer, layer_lines
from tests.support.figure_records import CAPTION, legend, panels, probe_records, texts


def test_layers_show_mean_and_spread_over_heads_and_samples():
    records = probe_records()[:2].assign(parameters='{"delta": 0.75}')
    frame = by_layer(records)
    assert frame["layer"].tolist() == [0, 5] and frame["mean"].tolist() == pytest.approx([0.5, 0.6])
    assert frame["low"].tolist() == pytest.approx([0.26, 0.5]) and frame["heads"].tolist() == [2, 2]
    figure = layer_lines(records, CAPTION)
    (axis,) = panels(figure)
    assert (axis.get_title(), axis.get_xlabel(), axis.get_ylabel()) == ("lazy_mass", "layer", "mass")
    assert list(axis.lines[0].get_ydata()) == pytest.approx([0.5, 0.6]) and set(axis.lines[1].get_ydata()) == {0.75}
    assert legend(figure) == ["delta 0.75: lazy above"]
    assert "10% to 90% of heads and samples" in texts(figure)
