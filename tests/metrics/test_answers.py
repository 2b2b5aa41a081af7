"""Metrics by name."""

from string import ascii_uppercase

import pytest

from kvbench.errors import UserError
from kvbench.metrics.answers import METRICS, check, score, source


@pytest.mark.parametrize(
    "metric, prediction, answer, expected",
    [
        ("contains", "It is the Blue key.", "blue key", 1),
        ("contains", "It is bluekey", "blue key", 0),
        ("contains", "12 May", "2 May", 0),
        ("exact", "The blue key!", "a blue key", 1),
        ("exact", "the blue key, I think", "blue key", 0),
        ("f1", "the blue door", "blue key", 0.5),
        ("rouge_l", "one two three", "one three", 0.8),
        ("choice", "B", "b", 1),
        ("choice", "(B) Paris", "B", 1),
        ("choice", "B. Paris, not A", "B", 1),
        ("choice", "A dog can bark, so the answer is C.", "C", 1),
        ("choice", "Answer: (D)", "D", 1),
        ("choice", "A dog can bark", "A", 0),
        ("choice", "", "A", 0),
    ],
)
def test_scores_by_hand(metric, prediction, answer, expected):
    assert score(metric, prediction, [answer]) == pytest.approx(expected)


@pytest.mark.parametrize(
    "prediction, letter",
    [
        ("The answer is B.", "B"),
        ("The correct answer (b) is Paris.", "B"),
        ("The answer is B because it is Paris", "B"),
        ("The answer is A because it is Paris", "A"),
        ("The answer is **A** and nothing else", "A"),
        ("Answer: A (Paris)", "A"),
        ("Answer: A\nA dog can bark", "A"),
        ("Answer:\n\nI", "I"),
        ("The answer is a", "A"),
        ("The answer is a combination of the two, namely (B).", None),
        ("The answer is a combination, so my answer is (B).", "B"),
        ("Answer: I think it is B.", None),
        ("Answer: I'm sure. The answer is C.", "C"),
        ("Answer: A reasonable person would pick (C).", None),
        ("Answer: A-levels. The answer is D", "D"),
        ("This answers all. The answer is C", "C"),
        ("(B), as a good answer: a guess", "B"),
    ],
)
def test_the_letter_of_a_choice_is_no_article_or_pronoun(prediction, letter):
    found = [other for other in ascii_uppercase if score("choice", prediction, [other])]
    assert found == [letter] * (letter is not None)


@pytest.mark.parametrize("metric", METRICS)
def test_the_best_answer_counts(metric):
    assert score(metric, "b", ["z", "b"]) == 1
    assert score(metric, "b", ["z", "y"]) == 0


def test_a_function_gets_the_prediction_and_all_answers():
    assert score("tests.support.metric.shortest", "abc", ["abcdef", "abcd"]) == 0.75
    assert len(source("tests.support.metric.shortest")) == 64
    assert source("f1") is None


@pytest.mark.parametrize(
    "metric, answers, message",
    [
        (
            "f2",
            (),
            "unknown metric 'f2'. Did you mean 'f1'? Allowed: choice, contains, exact, f1, module.function, rouge_l",
        ),
        ("no.such.function", (), "metric=no.such.function cannot be imported: No module named 'no'"),
        ("math.pi", (), "metric=math.pi is float, not a function"),
        ("choice", ["Paris"], "answer 'Paris' is not a letter, which metric=choice compares"),
    ],
)
def test_mistakes_are_one_line(metric, answers, message):
    with pytest.raises(UserError) as error:
        check(metric, answers)
    assert str(error.value) == message


def test_a_function_must_return_a_share():
    with pytest.raises(UserError, match="returned 2: a number from 0 to 1 is needed"):
        score("tests.support.metric.two", "a", ["b"])
