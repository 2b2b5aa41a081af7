"""Records of two machines are paired by sample and setting, and every setting's difference has its interval."""

import pandas as pd
import pytest

from scripts.results import two_machines


def records(scores, answers, task="a"):
    return pd.DataFrame(
        {
            "sample": [f"{task}-{i}" for i in range(len(scores))],
            "setting": "snapkv",
            "task": task,
            "unit": [f"{task} text {i}" for i in range(len(scores))],
            "prediction": [*answers],
            "scores": [{"score": value} for value in scores],
        }
    )


def test_only_samples_of_both_are_compared_and_tasks_have_equal_weight():
    first = pd.concat([records([1.0, 0.0, 1.0], "abc"), records([1.0, 1.0], "de", "b")])
    second = pd.concat([records([1.0, 1.0], "ax"), records([0.0, 1.0], "xe", "b")])
    both = two_machines.pairs(first, second, "score")
    row = two_machines.compared("snapkv", both)
    assert row["samples"] == 4 and row["equal"] == 0.5
    assert (row["first"], row["second"], row["difference"]) == (0.75, 0.75, 0.0)
    assert row["low"] < 0 < row["high"]


@pytest.mark.parametrize("worse, named", [(0.0, "snapkv"), (1.0, "none")])
def test_settings_beyond_their_interval_are_named(worse, named):
    first, second = records([1.0] * 30, "a" * 30), records([worse] * 30, "a" * 30)
    both = two_machines.pairs(first, second, "score")
    table = pd.DataFrame([two_machines.compared("snapkv", both)])
    assert two_machines.summary(both, table).endswith(f"excludes 0: {named}.")
    assert f"{worse - 1:+.3f}" in two_machines.as_text(table).markdown()
