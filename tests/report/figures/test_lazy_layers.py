"""Lazy layers."""

import pandas as pd
import pytest

from kvbench.report.figures.lazy_layers import lazy_maps, lazy_share
from tests.support.figure_records import (
    CAPTION,
    is_whole,
    layer_ticks,
    panels,
    texts,
)


def test_lazy_layers_are_those_that_kept_less_than_the_prompt():
    records = pd.DataFrame(
        {
            "setting": "simlayerkv",
            "sample": list("abcd"),
            "task": ["x", "x", "y", "y"],
            "prompt_tokens": 100,
            "kept_per_layer": [[100.0, 30.0], [30.0, 30.0], [100.0, 100.0], [100.0, 30.0]],
        }
    )
    by_task = lazy_share(records)
    assert by_task.to_numpy().tolist() == [[0.5, 0.0], [1.0, 0.5]] and list(by_task) == ["x", "y"]
    assert list(lazy_share(records[:2])) == ["a", "b"]
    figure = lazy_maps(records, CAPTION)
    assert panels(figure)[0].get_title() == "SimLayerKV\n50% of layers"
    assert "share of samples in which the layer was lazy" in texts(figure) and "layer" in texts(figure)


@pytest.mark.parametrize("layers", [1, 2, 4, 32])
@pytest.mark.parametrize("samples", [1, 30])  # with and without names below
def test_no_label_of_few_layers_is_cut_off_and_layers_are_whole_numbers(layers, samples):
    names = [str(i) for i in range(samples)]
    records = pd.DataFrame(
        {"setting": "simlayerkv", "sample": names, "prompt_tokens": 9, "kept_per_layer": [[9.0] * layers] * samples}
    )
    figure = lazy_maps(records, CAPTION)
    assert is_whole(figure, "share of samples")
    ticks = layer_ticks(panels(figure)[0])
    assert ticks and all(tick == int(tick) for tick in ticks)


def test_long_names_of_neighbouring_panels_do_not_meet():
    names = ["minicache_simlayerkv_q4", "a method of mine with a very long name"]
    records = pd.DataFrame(
        {"setting": [*names, *names], "sample": [*"aabb"], "prompt_tokens": 9, "kept_per_layer": [[9.0] * 4] * 4}
    )
    figure = lazy_maps(records, CAPTION)
    figure.draw_without_rendering()
    left, right = (axis.title.get_window_extent() for axis in panels(figure)[:2])
    assert left.x1 < right.x0
