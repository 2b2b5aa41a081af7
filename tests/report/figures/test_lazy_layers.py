"""Lazy layers."""

import pandas as pd

from kvbench.report.figures.lazy_layers import lazy_maps, lazy_share
from tests.support.figure_records import (
    CAPTION,
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
