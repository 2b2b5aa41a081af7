"""InfiniteBench's metrics are the official ones."""

import pytest

from kvbench.errors import UserError
from kvbench.metrics.infinitebench import METRICS, score
from kvbench.utils.jsonl import read_rows
from tests.support.paths import DATA

FIELDS = {"task": str, "prediction": str, "answers": list[str], "official": float}
ROWS = read_rows(DATA / "infinitebench" / "predictions.jsonl", FIELDS)


def test_every_score_of_models_answers_is_the_official_one():
    assert {row["task"] for row in ROWS} == set(METRICS) - {"math_calc"} and len(ROWS) > 80
    for row in ROWS:
        assert score(row["task"], row["prediction"], row["answers"]) == row["official"], row


CASES = {
    ("passkey", "71432"): {"The key is 71432, not 7.": 1, "71,432": 0, "071432": 0, "none": 0},
    ("kv_retrieval", "a-b"): {'"a-b"': 1, "is:a-b.": 1, "xa-b": 0, "(a-b)": 0},
    ("longdialogue_qa_eng", "ACE", "ACE ROTHSTEIN"): {"Ace!": 1, "It is ace": 1, "Aces": 0, "ROTHSTEIN": 0},
    ("longdialogue_qa_eng", "ACE ROTHSTEIN", "ACE"): {"ACE ROTHSTEIN": 0, "ACE": 0},
    ("math_find", "88"): {"88": 1, "It is 88, not 3": 1, "-88": 1, "88.0": 0, "8 8": 0, "": 0},
    ("math_find", "49.5"): {"49.5": 1, "49.50": 1, "49": 0, "is 49.5.": 1},
    ("math_calc", "[79, 59, 0, -3]"): {"79, 59, 0": 0.75, "[079, 59, 00, 3": 0.75, "1, 79": 0, "79 -59": 0.5, "": 0},
    ("code_run", "4"): {"The return value is: 4.": 1, "4 is it": 0, "-4": 0, "`4`": 1, "four": 0, "": 0},
    ("code_run", "-4"): {"-4": 1, "is - 4": 0},
    ("longbook_choice_eng", "Snowfield", "C"): {
        **{"C": 1, "C. Snowfield": 1, "Snowfield": 1, "B. Snowfield": 0, "": 0, "I think C": 1, "Could be": 1},
        **{"the answer is: Snowfield": 1, "the answer is Snowfield": 1, "the answer is": 0, "So BC": 0, "none": 0},
        **{'The option is "C"': 1, "It is option is C or not": 1, "the answer is. C": 1},
    },
    ("code_debug", "get_name", "B"): {
        **{"B.": 1, "B: get_name": 1, "B": 0, "get_name": 0, "The answer is: B": 1, "The correct Option is: B": 1},
        **{"The error is: get_name": 1, "answer: A": 0, "answer:": 0, "is: A. The answer is: B": 1, "is:\n\n**B**": 1},
        **{"is: A then is: B": 0},
    },
    ("longbook_qa_eng", "the old house", "a barn"): {"The old, old house": 0.8, "Barn.": 1, "": 0, "a": 0},
    ("longbook_qa_chn", "老房子"): {"老房子。": 1, "房 子": 0.8, "": 0},
    ("longbook_sum_eng", "one two three four"): {"one two": 2 / 3, "": 0, "One, two. Three four!": 1},
}


@pytest.mark.parametrize("task", CASES, ids=" ".join)
def test_oddities_are_the_official_ones(task):
    name, *answers = task
    for prediction, value in CASES[task].items():
        assert score(name, prediction, answers) == pytest.approx(value), prediction


def test_an_unknown_task_is_refused():
    with pytest.raises(UserError, match="unknown InfiniteBench task 'pass_key'"):
        score("pass_key", "", ["1"])
