"""RULER's metrics: references found in a cleaned prediction."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.errors import UserError
from kvbench.metrics.ruler import clean, string_match_all, string_match_part


def test_control_characters_become_line_ends_and_blanks_at_the_ends_go():
    assert clean("  a\tb\x00c\x1fd \x00 ") == "a\nb\nc\nd"
    assert clean("\x1e\x00 12 \n") == "12"
    assert clean("a\x7fb\u00a0c\u200b") == "a\x7fb\u00a0c\u200b"  # above U+001F nothing changes
    assert clean("a\r\nb") == "a\n\nb"
    assert clean(" \t\n") == ""


def test_all_is_the_share_of_the_answers_found():
    prediction = "The numbers are 1234567, 7654321 and 1111111."
    assert string_match_all(prediction, ["1234567", "7654321"]) == 1
    assert string_match_all(prediction, ["1234567", "2222222"]) == 0.5
    assert string_match_all(prediction, ["1234567", "2", "9", "8"]) == 0.5  # a string, not a word: 2 is in 1234567
    assert string_match_all("", ["1"]) == 0


def test_part_is_whether_any_answer_is_found():
    assert string_match_part("In Normandy.", ["France", "normandy", "NORMANDY"]) == 1
    assert string_match_part("In Spain.", ["France", "Normandy"]) == 0
    assert string_match_part("", ["France"]) == 0


def test_answers_are_looked_for_in_the_cleaned_prediction():
    assert string_match_all("New\tYork", ["New York"]) == 0
    assert string_match_all("New\tYork", ["New\nYork"]) == 1
    assert string_match_part("New\x00York", ["New\nYork"]) == 1


@pytest.mark.parametrize("metric", [string_match_all, string_match_part])
def test_a_sample_without_answers_is_refused(metric):
    with pytest.raises(UserError, match="has no answers"):
        metric("12", [])


TEXT = st.text(alphabet="aB1 \n\t\x00", max_size=12)


@given(TEXT, st.lists(TEXT, min_size=1, max_size=4), st.randoms())
def test_scores_lie_in_0_to_1_and_the_answers_order_does_not_matter(prediction, answers, random):
    shuffled = random.sample(answers, len(answers))
    every, some = string_match_all(prediction, answers), string_match_part(prediction, answers)
    assert 0 <= every <= some <= 1
    assert (some == 1) == (every > 0)
    assert string_match_all(prediction, shuffled) == every
    assert string_match_part(prediction, shuffled) == some


@given(TEXT.filter(lambda text: text == clean(text)))
def test_the_answer_itself_scores_1(text):
    assert string_match_all(text, [text]) == string_match_part(text, [text]) == 1
    assert string_match_all(f"so: {text.upper()}!", [text]) == 1
