"""Scores of needles."""

import pytest

from kvbench.metrics.needle import rouge1_f, rouge1_recall
from tests.support.niah import short


def test_rouge_of_needles_stems_words_as_the_testers_do():
    assert rouge1_f("eat sandwiches in parks", "eating a sandwich in the park") == pytest.approx(0.8)
    assert rouge1_recall("eat sandwiches in parks", "eating a sandwich in the park") == 1
    assert rouge1_f("eat", "") == rouge1_recall("eat", "") == 0


def test_words_beside_the_needle_cost_rouge_but_no_recall(embedded):
    grid = short("niah_kamradt")
    sample = grid.samples(embedded.tokenizer)[0]
    (needle,) = sample.answers
    assert grid.score(sample, needle) == {"rouge1": 1, "recall": 1}
    wordy = grid.score(sample, needle + " Nothing else is told.")
    assert wordy["recall"] == 1 > wordy["rouge1"]
    assert short("niah_pyramidkv").score(sample, f" {needle}") == {"rouge1": 1}
