"""scripts/benchmarks/sample_efficiency.py: samples needed to tell neighbouring settings apart."""

import pandas as pd
import pytest

from scripts.benchmarks.sample_efficiency import NEEDED, figure, needed, pairs


def frame(**measures):
    """Records of one method at three ratios and of FullKV: measure → a value per sample for each ratio."""
    rows = []
    for place, ratio in enumerate((0.125, 0.25, 0.5)):
        for sample in range(4):
            values = {name: of_ratios[place][sample] for name, of_ratios in measures.items()}
            rows.append({"method": "m", "setting": f"m {ratio}", "sample": str(sample), "requested": ratio, **values})
    rows += [{"method": "full", "setting": "full", "sample": "0", "requested": float("nan"), "score": 1.0}]
    return pd.DataFrame(rows)


def test_the_normal_approximation_at_5_per_cent_with_a_power_of_80():
    assert pytest.approx(7.85, abs=0.005) == NEEDED
    assert needed(pd.Series([0.0, 1.0, 0.0, 1.0])) == pytest.approx(NEEDED * (1 / 3) / 0.25)
    assert needed(pd.Series([1.0, -1.0])) == float("inf")
    assert needed(pd.Series([0.5, 0.5])) == 0


def test_neighbouring_settings_are_paired_by_sample():
    rows = pairs(
        frame(score=[[0, 0, 0, 1], [0, 1, 0, 1], [1, 1, 1, 1]], kl=[[4] * 4, [2] * 4, [1, 1, 1, 2]]), ["score", "kl"]
    )
    assert [row["settings"] for row in rows] == [["m 0.125", "m 0.25"], ["m 0.25", "m 0.5"]]
    assert [row["difference"]["score"] for row in rows] == [0.25, 0.5]
    assert rows[0]["needed"]["kl"] == 0
    assert rows[1]["needed"]["kl"] == pytest.approx(NEEDED * 0.25 / 0.75**2)


def test_every_pair_has_a_line_and_every_measure_a_mark():
    rows = pairs(frame(score=[[0, 0, 0, 1], [0, 1, 0, 1], [1, 1, 1, 1]]), ["score"])
    (axis,) = [axis for part in figure(rows, ["score"], "caption").subfigs for axis in part.axes]
    assert [tick.get_text() for tick in axis.get_yticklabels()] == ["m 0.125 / m 0.25", "m 0.25 / m 0.5"]
    assert len(axis.lines) == 2
