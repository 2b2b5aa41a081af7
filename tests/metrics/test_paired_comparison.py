"""Sign flips, Holm's correction, standard errors and verdicts, against values worked out by hand."""

from itertools import product
from math import erfc, sqrt

import numpy as np
import pytest

from kvbench.metrics.paired_comparison import EXACT, FLIPS, holm, sign_flip, standard_error, units_needed, verdict

NAN = float("nan")


def test_few_units_have_exact_p_values():
    sums = np.array([[1.0, 1.0, 0.0], [1.0, -1.0, 0.0], [1.0, 0.5, 0.0]])
    # all of one sign: 2 of 8 assignments reach it; 0.5 is reached by all; no difference by all
    assert sign_flip(sums).tolist() == [0.25, 1.0, 1.0]


def test_p_values_count_the_assignments_that_reach_the_difference():
    differences = np.random.default_rng(1).normal(0.4, 1, 11)
    reached = [
        abs(np.dot(signs, differences)) >= abs(differences.sum()) - 1e-9 for signs in product((1, -1), repeat=11)
    ]
    assert sign_flip(differences[:, None])[0] == sum(reached) / 2**11


def test_many_units_have_p_values_near_the_normal_tests_and_never_zero():
    differences = np.random.default_rng(2).normal(0.2, 1, 100)
    assert len(differences) > EXACT
    z = differences.sum() / sqrt((differences**2).sum())
    assert sign_flip(differences[:, None])[0] == pytest.approx(erfc(abs(z) / sqrt(2)), abs=0.015)
    assert sign_flip(np.ones((100, 1)))[0] == 1 / (FLIPS + 1)


def test_a_comparison_of_few_units_is_exact_whatever_units_others_have():
    many = np.random.default_rng(4).normal(0.2, 1, 100)
    few = np.where(np.arange(100) % 12 == 3, 1.0, NAN)  # 9 units
    other = np.where(np.arange(100) < 3, 0.0, NAN)
    p_values = sign_flip(np.stack([few, many, other, few], axis=1))
    assert p_values[[0, 2, 3]].tolist() == [2 / 2**9, 1.0, 2 / 2**9]
    assert p_values[1] == sign_flip(many[:, None])[0]


def test_sign_flips_reject_a_true_hypothesis_in_as_many_cases_as_the_level_says():
    sums = np.random.default_rng(3).normal(size=(12, 2000))
    assert (sign_flip(sums) <= 0.05).mean() == pytest.approx(0.05, abs=0.015)


def test_holms_correction_is_the_worked_example():
    # 4 × 0.005, 3 × 0.01, 2 × 0.03 and, as it must not fall, 0.06 again
    assert holm([0.01, 0.04, 0.03, 0.005]) == pytest.approx([0.03, 0.06, 0.06, 0.02])
    assert holm([0.5, NAN, 0.9])[[0, 2]] == pytest.approx([1.0, 1.0]) and np.isnan(holm([0.5, NAN])[1])


def test_the_standard_error_is_that_of_the_mean_and_grows_with_shared_units():
    differences = np.array([1.0, 0.0, 1.0, 0.0, 0.0, 1.0])
    one = np.zeros(6, dtype=int)
    alone = standard_error(differences, one, np.arange(6))
    assert alone == pytest.approx(differences.std(ddof=1) / np.sqrt(6))
    together = standard_error(np.repeat(differences, 10), np.repeat(one, 10), np.repeat(np.arange(6), 10))
    assert together == pytest.approx(alone)
    tasks = standard_error(np.tile(differences, 2), np.repeat([0, 1], 6), np.arange(12))
    assert tasks == pytest.approx(alone / np.sqrt(2))
    same_texts = standard_error(np.tile(differences, 2), np.repeat([0, 1], 6), np.tile(np.arange(6), 2))
    assert same_texts == pytest.approx(alone)
    assert np.isnan(standard_error(differences, one, one))
    assert standard_error(np.array([1.0, 0.0]), one[:2], np.arange(2)) == pytest.approx(0.5)  # two units are enough


def test_the_units_needed_are_those_of_the_normal_approximation():
    # (1.96 + 0.84)² × 0.5² / 0.1² = 196.2
    assert units_needed(0.5 / np.sqrt(20), 20, 0.1) == 197
    assert units_needed(0.0, 20, 0.1) is None and units_needed(NAN, 20, 0.1) is None
    assert units_needed(1e308, 20, 0.1) is None, "a forged score ended kvbench compare with an OverflowError"
    assert units_needed(0.1, 20, 0.0) is None


@pytest.mark.parametrize(
    "low, high, said",
    [
        (-0.02, 0.1, "within"),
        (0.01, 0.1, "within"),
        (-0.03, 0.1, "undecided"),
        (-0.3, -0.02, "undecided"),
        (-0.3, -0.021, "broken"),
        (NAN, NAN, "undecided"),
    ],
)
def test_a_verdict_is_about_the_whole_interval(low, high, said):
    assert verdict(low, high, 0.02) == said
