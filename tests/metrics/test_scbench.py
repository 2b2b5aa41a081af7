"""SCBench's metrics, with values of the official functions, and what is mended in them."""

import pytest

from kvbench.benchmarks.scbench.tasks import TASKS
from kvbench.metrics.scbench import METRICS, score


@pytest.mark.parametrize(
    "kind, prediction, answers, official",
    [
        ("kv", 'The value is "a-b".', ("a-b",), 1),
        ("kv", "A-B", ("a-b",), 0),
        ("prefix_suffix", "xabcx", ("abc",), 1),
        ("vt", "a and B", ("A", "B", "CC"), 0.67),
        ("qa_eng", " in the OLD mill. ", ("the old Mill",), 1),
        ("choice_eng", "", ("Anna", "B"), 0),
        ("choice_eng", "B. Anna", ("Anna", "B"), 1),
        ("choice_eng", "Bob", ("Anna", "B"), 1),  # its first letter
        ("choice_eng", "Anna", ("Anna", "B"), 0),  # an A
        ("choice_eng", "the mill", ("the mill", "C"), 1),
        ("choice_eng", "I think the answer is: C, surely", ("the mill", "C"), 1),
        ("choice_eng", "so the answer is the mill", ("the mill", "C"), 1),
        ("choice_eng", "my answer:", ("the mill", "C"), 0),
        ("choice_eng", "it may be C or D", ("the mill", "C"), 1),
        ("choice_eng", "it may be D or C", ("the mill", "C"), 0),
        ("choice_eng", "none", ("the mill", "C"), 0),
        ("mf", "It is 9.7, not 8", ("9",), 1),
        ("mf", "It is 9.7", ("9.7",), 1),
        ("mf", "nine", ("9",), 0),
        ("passkey", "x071y", ("071",), 1),
        ("passkey", "none", ("071",), 0),
        (
            "summary",
            "the mill stood\nby the river",
            ("the mill\nby a river",),
            pytest.approx(8 / 11),
        ),
    ],
)
def test_scores_without_a_mistake_are_the_official_ones(kind, prediction, answers, official):
    assert score(kind, prediction, answers)["official"] == official


def test_the_official_chinese_score_compares_with_single_characters():
    for answer in ("山上", "在山上", "山"):
        perfect = score("qa_chn", answer, (answer,))
        assert perfect == {"official": pytest.approx(2 / (len(answer) + 1)), "mended": 1}
    assert score("qa_chn", "，", ("山上",)) == {"official": 0, "mended": 0}


@pytest.mark.parametrize(
    "prediction, answer, mended",
    [
        ("(A)", "(A)", 1),
        ("(B) as (A)", "(A)", 0),
        ("(B) no", "(A) yes", 0),
        ("The yes!", "(A) yes", 1),
        ("a no", "(A) yes", 0),
        ("a", "(A)", 0),  # no text to compare
        ("An apple.", "apple", 1),
    ],
)
def test_the_official_many_shot_score_accepts_any_character(prediction, answer, mended):
    found = score("many_shot", prediction, (answer,))
    assert found["mended"] == mended
    assert found["official"] == any(character.upper() in prediction.upper() for character in answer)


def test_shares_of_names_are_mended_from_two_digits():
    assert score("vt", "a", ("A", "B", "CC")) == {"official": 0.33, "mended": pytest.approx(1 / 3)}


def test_every_kind_but_repoqa_has_a_metric():
    assert {kind for task in TASKS.values() for kind in task.limits} - {"repoqa"} == set(METRICS)
