"""NoLiMa's metric, base score and effective length."""

import pytest

from kvbench.metrics.nolima import base_score, contains, effective_length


@pytest.mark.parametrize(
    "prediction, golds, value",
    [
        ("It is Mira.", ["Mira"], 1),
        ("mira", ["Mira"], 0),
        ("Miranda", ["Mira"], 1),
        ("", ["Mira"], 0),
        ("b", ["a", "b"], 1),
    ],
)
def test_an_answer_must_contain_any_gold_as_it_is(prediction, golds, value):
    assert contains(prediction, golds) == value


def test_the_base_score_is_the_mean_of_the_best_short_length_of_each_test():
    means = {"a": {250: 90.0, 500: 100.0, 1000: 80.0, 4000: 100.0}, "b": {250: 60.0, 500: 50.0, 1000: 40.0, 4000: 0.0}}
    assert base_score(means) == 80


@pytest.mark.parametrize(
    "scores, length",
    [
        ({250: 100, 1000: 90, 2000: 85, 4000: 84}, 2000),
        ({1000: 90, 2000: 80, 4000: 85}, 4000),
        ({250: 100, 500: 100, 1000: 84}, None),
    ],
)
def test_the_effective_length_is_the_longest_that_keeps_85_percent_of_the_base(scores, length):
    assert effective_length(scores, 100) == length


def test_no_length_is_effective_where_nothing_is_found():
    """A setting that found no needle at any length had the longest as its effective length."""
    assert effective_length({250: 0.0, 500: 0.0, 1000: 0.0, 8000: 0.0}, 0.0) is None
