"""The page's differences of all settings from one, in a real browser."""

import numpy as np
import pytest

from kvbench.metrics.bootstrap import paired_interval

pytestmark = pytest.mark.heavy


def test_each_setting_is_compared_with_full_on_the_same_samples(page):
    assert page.column("differences", 1) == ["SnapKV 0.2", "SnapKV 0.4", "H2O 0.2"]
    row = page.texts("#differences tbody tr:nth-child(1) > td")
    assert row[:1] + row[2:] == ["-0.667", "<0.001", "<0.001", "0", "40", "80", "120"]
    low, high = map(float, row[1].split(" to "))
    found = np.repeat([0.0, 0.0, 1.0], 40)
    assert (low, high) == pytest.approx(paired_interval(found, np.ones(120)), abs=0.03)
    assert "over 120 texts" in page.texts("#differences .note")[-1]


def test_units_that_all_differ_equally_have_a_narrow_interval(page):
    low, high = map(float, page.column("differences", 3)[1].split(" to "))  # SnapKV 0.4 finds half of every needle
    assert -0.55 < low < -0.5 < high < -0.45


def test_another_baseline_is_chosen_and_hidden_methods_are_left_out(page):
    page.choose("#differences select", "SnapKV 0.2")
    assert page.column("differences", 1) == ["FullKV", "SnapKV 0.4", "H2O 0.2"]
    assert page.texts("#differences tbody tr:nth-child(1) > td")[0] == "+0.667"
    page.click(".methods label:nth-of-type(3) input")
    assert page.column("differences", 1) == ["FullKV", "SnapKV 0.4"]
