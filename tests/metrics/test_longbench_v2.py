"""LongBench v2's metric finds the choice as the official code does."""

import pytest

from kvbench.metrics.longbench_v2 import chosen, score


@pytest.mark.parametrize(
    "prediction, letter",
    [
        ("The correct answer is (B)", "B"),
        ("The correct answer is B", "B"),
        ('**"The correct answer is (C) because"**', "C"),
        ("The correct answer is **(D)**.", "D"),
        ("The correct answer is A ... The correct answer is (B)", "B"),
        ("The correct answer is (A). The correct answer is (B)", "A"),
        ("The correct answer is Because", "B"),
        ("the correct answer is (B)", None),
        ("The correct answer is: (B)", None),
        ("The correct answer is (E)", None),
        ("The correct answer is\n(B)", None),
        ("(B)", None),
        ("", None),
    ],
)
def test_the_choice_is_the_official_one(prediction, letter):
    assert chosen(prediction) == letter


def test_an_answer_without_a_choice_is_wrong_and_a_quarter_when_compensated():
    assert score("The correct answer is (B)", "B") == {"score": 1, "compensated": 1}
    assert score("The correct answer is (B)", "C") == {"score": 0, "compensated": 0}
    assert score("I cannot say", "C") == {"score": 0, "compensated": 0.25}
