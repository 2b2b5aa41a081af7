"""BABILong's metric is the official one."""

import pytest

from kvbench.errors import UserError
from kvbench.metrics.babilong import LABELS, score
from kvbench.utils.jsonl import read_rows
from tests.support.paths import DATA

ROWS = read_rows(DATA / "babilong" / "predictions.jsonl", {"task": str, "output": str, "official": int})


def test_every_verdict_on_a_models_answers_is_the_official_one():
    assert {row["official"] for row in ROWS} == {0, 1} and len(ROWS) == 50
    for row in ROWS:
        assert score(row["task"], row["output"], row["target"], row["question"]) == row["official"], row


@pytest.mark.parametrize(
    "task, output, target, question, value",
    [
        ("qa1", "The Kitchen. Or the garden.", "kitchen", "Where is Mary?", 1),
        ("qa1", "kitchen or garden", "kitchen", "Where is Mary?", 0),
        ("qa1", "kitchen, not the garden", "kitchen", "Was the garden first?", 1),
        ("qa1", "kitchen <example> garden", "kitchen", "Where is Mary?", 1),
        ("qa1", "kitchen Question: garden", "kitchen", "Where is Mary?", 0),
        ("qa1", "", "kitchen", "Where is Mary?", 0),
        ("qa5", "BILL", "Bill", "Who gave the milk to Fred?", 1),
        ("qa8", "milk, apple", "apple,milk", "What is Mary carrying?", 1),
        ("qa8", "milk", "apple,milk", "What is Mary carrying?", 0),
        ("qa8", "milk apple football", "apple,milk", "What is Mary carrying?", 0),
        ("qa19", "s,w", "s,w", "How do you go?", 1),
        ("qa6", "nothing", "no", "Is Mary here?", 1),
    ],
)
def test_only_the_target_may_be_named_in_the_first_sentence(task, output, target, question, value):
    assert score(task, output, target, question) == value


def test_every_task_has_labels_and_another_is_refused():
    assert list(LABELS) == [f"qa{number}" for number in range(1, 21)]
    with pytest.raises(UserError, match="unknown BABILong task 'qa21'"):
        score("qa21", "", "", "")
