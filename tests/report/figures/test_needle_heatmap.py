"""Needle grids."""

import numpy as np

from kvbench.report.figures.needle_heatmap import heatmaps
from tests.support.figure_records import CAPTION, method_records, panels, texts


def test_needle_grids_of_all_settings_have_one_scale_and_show_their_means():
    figure = heatmaps(method_records(), "digits", CAPTION)
    images = [axis.images[0] for axis in panels(figure)]
    assert len(images) == 3 and {(image.norm.vmin, image.norm.vmax) for image in images} == {(0, 1)}
    assert (np.asarray(images[0].get_array()) == [[0, 0], [0.5, 0.5], [1, 1]]).all()
    assert panels(figure)[1].get_title().splitlines() == ["SnapKV 0.2", "mean 0.50", "r 0.20 · r_bytes 0.60"]
    for text in ("context length (tokens)", "needle depth (%)", "score (digits, 0 to 1)", "how it differs"):
        assert text in texts(figure)
