"""Final answers: which part of a text is one, and integers compared as integers."""

import pytest

from kvbench.metrics import math_answers
from kvbench.metrics.math_answers import expression_score, integer_score, last_box
from kvbench.metrics.thinking import answer_part


@pytest.mark.parametrize(
    "text, box",
    [
        ("so \\boxed{5}", "5"),
        ("\\boxed{1} then \\boxed{2}", "2"),
        ("\\boxed{\\frac{1}{2}}", "\\frac{1}{2}"),
        ("\\boxed {\\{1, 2\\}}", "\\{1, 2\\}"),
        ("\\boxed{\\}", None),
        ("\\boxed{3} and \\boxed{4", "3"),
        ("\\boxed{\\boxed{6}}", "6"),
        ("boxed{5}", None),
        ("", None),
    ],
)
def test_the_last_box_with_balanced_braces(text, box):
    assert last_box(text) == box


@pytest.mark.parametrize(
    "text, right",
    [
        ("\\boxed{25}", True),
        ("\\boxed{025}", True),
        ("\\boxed{ $25$ }", True),
        ("\\boxed{\\textbf{(025)}}", True),
        ("\\boxed{2\\,5}", False),  # a product
        ("\\boxed{2,5}", False),
        ("\\boxed{25.0}", True),
        ("\\boxed{25^\\circ}", True),
        ("\\boxed{N = 25}", True),
        ("\\boxed{25\\text{ ways}}", True),
        ("\\boxed{\\$25}", True),
        ("\\boxed{+25}", True),
        ("\\boxed{\\left(25\\right)}", True),
        ("\\boxed{\\frac{25}{1}}", True),
        ("\\boxed{2500}", False),  # no per cent
        ("\\boxed{x} 25", False),
        ("\\boxed{7}</think>\\boxed{25}", True),
        ("\\boxed{25}</think>It is 7.", False),
        ("<think>\\boxed{25} so", True),  # thinking that was cut
        ("It is 7.\nThe answer is 25.\n\n", True),
        ("It is 25.\nThank you.", False),
        ("It is 25.0", True),
        ("It is 7.25", False),
        ("", False),
    ],
)
def test_an_integer_is_compared_as_one(text, right):
    found = integer_score(text, "025")
    assert found == {"correct": right, "boxed": last_box(answer_part(text)) is not None}


@pytest.mark.parametrize("right, correct, undecided", [(True, 1, 0), (False, 0, 0), (None, 0, 1)])
def test_a_comparison_that_takes_too_long_is_wrong_and_counted(monkeypatch, right, correct, undecided):
    asked = []
    monkeypatch.setattr(math_answers, "equal", lambda *pair: asked.append(pair) or right)
    found = expression_score("\\boxed{1}</think> \\boxed{\\frac12}", "0.5")
    assert found == {"correct": correct, "boxed": 1, "undecided": undecided}
    assert asked == [("0.5", " \\boxed{\\frac12}")]
