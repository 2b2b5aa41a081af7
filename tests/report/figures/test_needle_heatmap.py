"""Needle grids."""

import numpy as np
import pandas as pd

from kvbench.report.figures.needle_heatmap import heatmaps
from kvbench.report.tables.run_table import summarise
from tests.support.figure_records import CAPTION, method_records, panels, texts
from tests.support.report_run import record


def test_needle_grids_of_all_settings_have_one_scale_and_show_their_means():
    figure = heatmaps(method_records(), "digits", CAPTION)
    images = [axis.images[0] for axis in panels(figure)]
    assert len(images) == 3 and {(image.norm.vmin, image.norm.vmax) for image in images} == {(0, 1)}
    assert (np.asarray(images[0].get_array()) == [[0, 0], [0.5, 0.5], [1, 1]]).all()
    assert panels(figure)[1].get_title().splitlines() == ["SnapKV 0.2", "mean 0.50", "r 0.20 · r_bytes 0.60"]
    for text in ("context length (tokens)", "needle depth (%)", "score (digits, 0 to 1)", "how it differs"):
        assert text in texts(figure)


def test_the_mean_of_a_grid_whose_lengths_are_tasks_is_that_of_tables():
    found = {1000: [0.0, 0.5, 1.0], 2000: [1.0]}  # as a stopped run leaves them
    rows = [
        record(f"{length}-{place}", "full", score, task=str(length), length=length, depth=50 * place)
        for length, scores in found.items()
        for place, score in enumerate(scores)
    ]
    records = pd.DataFrame(rows)
    (panel,) = panels(heatmaps(records, "score", CAPTION))
    assert panel.get_title().splitlines()[1] == "mean 0.75" and summarise(records, ["score"])["score"].tolist() == [
        0.75
    ]
