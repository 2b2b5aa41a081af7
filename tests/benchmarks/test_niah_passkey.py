"""Pass keys."""

import pytest

from kvbench.errors import UserError
from kvbench.metrics.needle import first_number
from tests.support.niah import short


@pytest.mark.parametrize(
    "prediction, score",
    [
        ("71432", 1),
        (" 71432.", 1),
        ("071432", 1),
        ("٧١٤٣٢", 1),
        ("714320", 0),
        ("5 or 71432", 0),
        ("none", 0),
        ("7" * 5000, 0),  # more digits than Python reads as a number
    ],
    ids=lambda value: str(value)[:8],
)
def test_the_first_number_must_be_the_pass_key(prediction, score):
    assert first_number("71432", prediction) == score


def test_every_pass_key_has_its_digits_and_its_own_cell(embedded):
    samples = short("passkey", "digits=6", "seeds=2").samples(embedded.tokenizer)
    assert {len(sample.answers[0]) for sample in samples} == {6}
    assert len({sample.answers for sample in samples}) == len(samples) == 16
    assert {sample.unit for sample in samples} == {""}  # sentences that all texts repeat
    grid = short("passkey")
    sample = grid.samples(embedded.tokenizer)[0]
    assert grid.score(sample, sample.answers[0]) == {"exact": 1, "digits": 1}


def test_pass_keys_in_one_file_are_one_unit_of_intervals(embedded, tmp_path):
    for name in "ab":
        (tmp_path / f"{name}.txt").write_text(f"This is text {name}. " * 500)
    samples = short("passkey", "seeds=3", f"haystack_dir={tmp_path}").samples(embedded.tokenizer)
    assert {(sample.meta["seed"], sample.unit) for sample in samples} == {(0, "text 0"), (1, "text 1"), (2, "text 0")}


def test_a_pass_key_that_an_answer_has_no_room_for_is_an_error(embedded):
    """SmolLM2 takes a token for each digit, and one for the blank before them."""
    assert short("passkey", "digits=15").samples(embedded.tokenizer)
    with pytest.raises(UserError, match=r"max_new_tokens=16 cuts a pass key of 30 digits, which takes 31 tokens"):
        short("passkey", "digits=30").samples(embedded.tokenizer)
    assert short("passkey", "digits=30", "max_new_tokens=31").samples(embedded.tokenizer)
