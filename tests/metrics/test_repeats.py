"""Ratios of quantities that were measured several times."""

from math import isnan

import pytest

from kvbench.metrics.repeats import ratio


def test_the_ratio_of_geometric_means_with_an_interval_that_contains_it():
    found = ratio([2.0, 8.0], [1.0, 4.0])
    assert found.value == pytest.approx(2) and found.low < 2 < found.high
    narrow = ratio([3.9, 4.0, 4.1], [1.9, 2.0, 2.1])
    assert 1.5 < narrow.low < 2 < narrow.high < 2.7


def test_turned_around_it_is_one_over_it():
    a, b = [3.0, 4.0, 6.0], [1.0, 2.0, 2.5]
    assert ratio(b, a).value == pytest.approx(1 / ratio(a, b).value)


def test_one_repeat_has_no_interval_and_nothing_no_ratio():
    found = ratio([2.0], [1.0, 1.5])
    assert isnan(found.low) and isnan(found.high) and found.value > 1
    assert ratio([], [1.0]) is None and ratio([0.0], [1.0]) is None
