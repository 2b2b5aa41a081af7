"""Scores as kvpress computes them."""

import pytest

from kvbench.metrics.kvpress import needle_rouge1

NEEDLE = "\nThe best thing to do in Lisbon on a rainy day is to ride the yellow tram and drink hot chocolate.\n"


@pytest.mark.parametrize(
    "prediction, value",  # those of kvpress's calculate_metrics
    [
        (NEEDLE, 1),
        (" to ride the yellow tram and drink hot chocolate.", 0.62069),
        (" riding the yellow tram, and drinking hot chocolates.", 0.285714),
        ("the the the yellow", 0.181818),
        ("The. best.thing to", 0.333333),
        ("THE BEST THING", 0),
        ("", 0),
        (" . ", 0),
    ],
)
def test_the_needles_score_counts_words_as_they_are_written_and_each_once(prediction, value):
    assert needle_rouge1(NEEDLE, prediction) == pytest.approx(value, abs=1e-6)
