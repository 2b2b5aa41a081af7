"""Pass keys."""

import pytest

from kvbench.metrics.needle import first_number
from tests.support.niah import short


@pytest.mark.parametrize(
    "prediction, score", [("71432", 1), (" 71432.", 1), ("071432", 1), ("714320", 0), ("5 or 71432", 0), ("none", 0)]
)
def test_the_first_number_must_be_the_pass_key(embedded, prediction, score):
    assert first_number("71432", prediction) == score


def test_every_pass_key_has_its_digits_and_its_own_cell(embedded):
    samples = short("passkey", "digits=6", "seeds=2").samples(embedded.tokenizer)
    assert {len(sample.answers[0]) for sample in samples} == {6}
    assert len({sample.answers for sample in samples}) == len(samples) == 16
    grid = short("passkey")
    sample = grid.samples(embedded.tokenizer)[0]
    assert grid.score(sample, sample.answers[0]) == {"exact": 1, "digits": 1}
