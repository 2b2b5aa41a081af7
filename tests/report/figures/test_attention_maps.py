"""Attention and token maps."""

import numpy as np
import pytest

from kvbench.report.figures.attention_maps import attention_maps, token_maps
from tests.support.figure_records import (
    CAPTION,
    is_whole,
    layer_ticks,
    panels,
    probe_records,
    texts,
)


def test_maps_hide_what_no_query_sees_and_mark_the_answer():
    figure = attention_maps(probe_records()[3:], CAPTION)
    assert [axis.get_title() for axis in panels(figure)] == ["layer 0", "layer 5"]
    image = panels(figure)[0].images[0]
    assert image.get_array().mask.tolist() == np.triu(np.ones((4, 4), bool), 1).tolist()
    (box,) = panels(figure)[0].patches
    assert (box.get_y(), box.get_height(), box.get_linestyle()) == (6, 2, "--")
    for text in ("attended token (position)", "query (position)", "share", "a sample"):
        assert text in texts(figure)


def test_token_maps_give_the_answer_a_part_of_its_own():
    figure = token_maps(probe_records()[2:3], CAPTION)
    (axis,) = panels(figure)
    mesh = axis.collections[0]
    assert np.asarray(mesh.get_array()).tolist() == [[1, 1, 1, 0.1, 0.2]] * 2
    edges = mesh.get_coordinates()[0, :, 0]
    assert edges.tolist() == pytest.approx([0, 0.25, 0.5, 0.75, 0.875, 1])
    assert [text.get_text() for text in axis.get_xticklabels()] == ["0", "6", "+2"]
    assert "answer" in texts(figure)


@pytest.mark.parametrize("layers", [1, 2, 4, 32])
def test_no_label_of_token_maps_of_few_layers_is_cut_off_and_layers_are_whole_numbers(layers):
    made = probe_records()[2:3].assign(quantity="attention to the first 4 and last 1024 tokens", sample="a")
    made = made.assign(layers=[list(range(layers))], values=[[[1, 1, 1, 0.1, 0.2]] * layers])
    figure = token_maps(made, CAPTION)
    assert is_whole(figure, "attention to")
    ticks = layer_ticks(panels(figure)[0])
    assert ticks and all(tick == int(tick) for tick in ticks)
