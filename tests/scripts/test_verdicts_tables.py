"""The tables that say whether two sides judge a cache's type alike."""

import pandas as pd
import pytest

from scripts.results.verdicts_tables import LLAMA, OURS, agree, between


@pytest.mark.parametrize(
    ("theirs", "ours", "words"),
    [
        ("within", "within", "yes"),
        ("undecided", "undecided", "yes"),
        ("within", "broken", "no"),
        ("undecided", "broken", "one is undecided"),
        (float("nan"), "broken", ""),
    ],
)
def test_only_verdicts_that_exclude_each_other_disagree(theirs, ours, words):
    assert agree(theirs, ours) == words


def answers(scores_by_kind):
    """Scores of samples 0, 1, …, each with an answer that says its score."""
    frames = {
        kind: pd.DataFrame({"score": scores, "prediction": [f"{score:g} " for score in scores]})
        for kind, scores in scores_by_kind.items()
    }
    return pd.concat(frames, names=["kind", "sample"])


def test_a_change_is_the_difference_of_both_sides_losses():
    sides = {
        LLAMA: answers({"f16": [1.0, 1.0, 0.0, 1.0], "q4_0": [0.0, 0.0, 0.0, 1.0]}),
        OURS: answers({"f16": [1.0, 1.0, 1.0, 1.0], "q4_0": [1.0, 1.0, 0.0, 1.0]}),
    }
    found = between(sides, "q4_0", "f16")
    assert found["change"] == pytest.approx(-0.5 + 0.25)
    assert found["change_low"] < found["change"] < found["change_high"]
    assert (found["same_answers"], found["samples"]) == (2, 4)


def test_a_baseline_has_no_change():
    both = dict.fromkeys((LLAMA, OURS), answers({"f16": [1.0, 0.0]}))
    assert between(both, "f16", "f16") == {"same_answers": 2, "samples": 2}
