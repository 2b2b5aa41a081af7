"""Bytes against the reserve ratio."""

import numpy as np
import pytest

from kvbench.report.figures.memory import cache_sizes, memory_figure
from tests.support.figure_records import CAPTION, method_records, panels, texts


def test_memory_shows_bytes_and_where_r_promises_fewer():
    frame = cache_sizes(method_records())
    assert frame["stored"].tolist() == [1, 1, 1] and frame["full"].tolist() == [2, 2, 2] and frame["peak"].isna().all()
    figure = memory_figure(method_records(), CAPTION)
    bars, scatter = panels(figure)
    assert [text.get_text() for text in bars.get_yticklabels()] == ["FullKV", "SnapKV 0.2", "SnapKV 0.4"]
    assert [text.get_text() for text in bars.texts] == ["1.000", "0.600", "1.200"]
    diagonal, full, snapkv = scatter.lines
    assert list(snapkv.get_xdata()) == pytest.approx([0.2, 0.4]) and list(snapkv.get_ydata()) == pytest.approx(
        [0.6, 1.2]
    )
    assert (np.asarray(diagonal.get_xdata()) == np.asarray(diagonal.get_ydata())).all()
    assert scatter.get_ylim()[1] > 1.2 and full.get_marker() != snapkv.get_marker()
    assert "MiB per prompt, mean over samples" in texts(figure)
    streamed = cache_sizes(method_records(memory="stream"))
    assert streamed["peak"].tolist() == [4, 4, 4]


def test_bytes_and_both_ratios_are_of_the_runs_own_dtype():
    """Codes that take 0.28 of FullKV's bytes in float32 take 0.56 in 16 bits, where r would be as much, too."""
    figure = memory_figure(method_records(["codes 0.28"], r_bytes=0.28, r_bytes_16=0.56), CAPTION)
    bars, scatter = panels(figure)
    assert [text.get_text() for text in bars.texts] == ["0.280"]
    (_, codes) = scatter.lines
    assert list(codes.get_xdata()) == list(codes.get_ydata()) == pytest.approx([0.28])
    assert "r_bytes_16" not in texts(figure)
