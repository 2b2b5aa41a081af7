"""Needle grids."""

import numpy as np
import pandas as pd

from kvbench.configuration.conf import titled
from kvbench.report.figures import needle_heatmap
from kvbench.report.figures.needle_heatmap import Layout, draw_heatmaps, heatmaps
from kvbench.report.tables.run_table import summarise
from tests.support.figure_records import CAPTION, is_whole, method_records, panels, texts
from tests.support.report_run import record


def test_needle_grids_of_all_settings_have_one_scale_and_show_their_means():
    figure = heatmaps(method_records(), "digits", CAPTION)
    images = [axis.images[0] for axis in panels(figure)]
    assert len(images) == 3 and {(image.norm.vmin, image.norm.vmax) for image in images} == {(0, 1)}
    assert (np.asarray(images[0].get_array()) == [[0, 0], [0.5, 0.5], [1, 1]]).all()
    assert panels(figure)[1].get_title().splitlines() == ["SnapKV 0.2", "mean 0.50", "r 0.20 · r_bytes 0.60"]
    for text in ("context length (tokens)", "needle depth (%)", "score (digits, 0 to 1)", "how it differs"):
        assert text in texts(figure)


def test_a_title_that_is_longer_than_a_panel_has_several_lines():
    first = method_records()
    long = f"snapkv ({', '.join(f'parameter_{number}={number}' for number in range(9))}) 0.2"
    figure = heatmaps(pd.concat([first, first.assign(setting=long)]), "digits", CAPTION)
    assert is_whole(figure, "SnapKV (parameter_0=0, ")
    title = panels(figure)[-1].get_title().splitlines()
    assert " ".join(title[:-2]) == titled(long) and title[-2].startswith("mean ")


def test_settings_for_which_one_picture_has_no_room_are_in_further_ones(tmp_path, monkeypatch):
    """A picture of 240 settings over 10 × 11 cells was 72,000 pixels high and took 2 GB."""
    monkeypatch.setattr(needle_heatmap, "_TALLEST", 5.0)
    drawn = []
    monkeypatch.setattr(needle_heatmap, "save", lambda figure, path: drawn.append((figure, path.name)) or [path])
    first = method_records()
    names = [f"snapkv {number / 100}" for number in range(12)]
    records = pd.concat([first[first["setting"] == "full"], *(first.assign(setting=name) for name in names)])
    written = draw_heatmaps(records, "digits", tmp_path / "heatmap", CAPTION)
    assert [path.name for path in written] == [name for _, name in drawn] == ["heatmap", "heatmap-2"]
    titles = [[axis.get_title().splitlines()[0] for axis in panels(figure)] for figure, _ in drawn]
    assert len(titles[0]) == Layout.of(records).most and titles[0] + titles[1] == list(map(titled, ["full", *names]))
    assert all(figure.get_size_inches()[1] < 5 + 2 for figure, _ in drawn)
    assert "picture 2 of 2" in " ".join(texts(drawn[1][0]).split())


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
