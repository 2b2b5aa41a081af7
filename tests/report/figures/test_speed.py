"""The figure of a speed run."""

import numpy as np
import pandas as pd

from kvbench.report.figures.speed import repetitions, speed_figure
from tests.support.figure_records import (
    CAPTION,
    legend,
    panels,
    texts,
)
from tests.support.speed_runs import frame_of


def test_bars_are_medians_of_the_repeats_of_what_fits():
    times = {"repeats_seconds": {"first_token": [3.0, 1.0, 2.0], "decode": [1.0, 2.0, 4.0]}}
    frame = repetitions(
        frame_of(
            {"method": "full", "batch": 1} | times,
            {"method": "full", "batch": "largest", "sequences": 4} | times,
            {"method": "kivi", "batch": 1} | times,
            {"method": "kivi", "batch": "largest", "fits": False},
        )
    )
    assert len(frame) == 9
    assert frame["decode_tokens_per_s"][:6].tolist() == [10.0, 5.0, 2.5, 40.0, 20.0, 10.0]
    assert frame["cache_bytes"][3] == frame["cache_bytes"][0] / 4
    figure = speed_figure(frame, "a caption")
    decoding, first, cache, peak = (axis for part in figure.subfigs for axis in part.axes)
    assert [bar.get_height() for bar in decoding.containers[0]] == [5.0, 20.0]
    assert [bar.get_height() for bar in first.containers[0]] == [2.0, 2.0]
    assert decoding.containers[1][0].get_height() == 5.0 and np.isnan(decoding.containers[1][1].get_height())
    assert cache.get_ylabel() == peak.get_ylabel() == "MiB"
    assert [label.get_text() for label in decoding.get_xticklabels()] == ["512\n× 1", "512\n× largest"]
    assert len({bars[0].get_facecolor() for bars in decoding.containers}) == 2
    assert len({bars[0].get_hatch() for bars in decoding.containers}) == 2  # distinct in grey, too


def test_no_title_is_cut_off():
    times = {"repeats_seconds": {"first_token": [3.0], "decode": [1.0]}}
    figure = speed_figure(repetitions(frame_of({"method": "full", "batch": 1} | times)), "a caption")
    figure.draw_without_rendering()
    titles = [axis.title.get_window_extent() for part in figure.subfigs for axis in part.axes]
    assert len(titles) == 4 and all(title.x0 > 0 and title.x1 < figure.bbox.x1 for title in titles)


def test_a_setting_none_of_whose_batches_fits_is_named():
    times = {"repeats_seconds": {"first_token": [1.0], "decode": [1.0]}}
    made = [{"method": "full", "batch": 1} | times, {"method": "kivi", "batch": 1, "fits": False}]
    figure = speed_figure(repetitions(frame_of(*made)), CAPTION)
    assert legend(figure) == ["FullKV", "KIVI"]
    assert "no batch fits: KIVI" in texts(figure)
    assert [np.isnan(bar.get_height()) for bar in panels(figure)[0].patches] == [False, True]
    assert "no batch fits" not in texts(speed_figure(repetitions(frame_of(made[0])), CAPTION))
    assert repetitions(frame_of(made[1])).empty


def test_speed_draws_the_median_and_quartiles_of_what_was_measured():
    frame = pd.DataFrame(
        [
            {"setting": s, "length": n, "new_tokens": 4, "batch": b, "decode_tokens_per_s": v * n}
            | {"first_token_seconds": 1.0}
            for s in ("full", "snapkv 0.2")
            for n in (1, 2)
            for b in (1, 8)
            for v in (10, 20, 30, 40, 100)
        ]
    )
    figure = speed_figure(frame, CAPTION)
    decoding, first = panels(figure)  # no peak was measured
    assert [bar.get_height() for bar in decoding.patches] == [30, 30, 60, 60] * 2
    assert [y for _, y in decoding.collections[0].get_segments()[0]] == [20, 40]
    assert (decoding.get_ylabel(), first.get_ylabel()) == ("tokens / s", "seconds")
    assert [text.get_text() for text in decoding.get_xticklabels()] == ["1\n× 1", "1\n× 8", "2\n× 1", "2\n× 8"]
    assert legend(figure) == ["FullKV", "SnapKV 0.2"]
    assert len({bar.get_hatch() for bar in decoding.patches}) == 2


def test_times_of_two_engines_or_machines_are_no_repetitions_of_one_setting():
    def bars(**differ):
        made = [
            {"method": "full", "repeats_seconds": {"first_token": [1.0], "decode": [seconds]}} | {name: value}
            for name, values in differ.items()
            for value, seconds in zip(values, (0.1, 1.0), strict=True)
        ]
        return legend(figure := speed_figure(repetitions(frame_of(*made)), CAPTION)), [
            bar.get_height() for bar in panels(figure)[0].patches
        ]

    assert bars(decode_engine=["graph", None]) == (["FullKV (graph)", "FullKV (eager)"], [100.0, 10.0])
    assert bars(machine=["H100", "H200"]) == (["FullKV (H100)", "FullKV (H200)"], [100.0, 10.0])
    assert bars(threads=[2, 1]) == (["FullKV (threads: 2)", "FullKV (threads: 1)"], [100.0, 10.0])
