"""The draw of samples to make again: which, and how surely it has one of those that were forged."""

import math

import pytest

from kvbench.errors import UserError
from kvbench.runner.verify.rerun_draw import Draw

RECORDS = [{"sample": f"s{number}", "setting": name, "tokens": [number]} for number in range(40) for name in "ab"]


def test_a_nonce_draws_the_same_samples_in_whatever_order_records_are_and_another_one_others():
    drawn = Draw(3, "n").samples(RECORDS)
    assert drawn == Draw(3, "n").samples(RECORDS[::-1]) and len({*drawn}) == 3
    assert len({tuple(Draw(3, str(nonce)).samples(RECORDS)) for nonce in range(20)}) == 20


def test_a_changed_record_draws_others():
    edited = [{**record, "tokens": [number]} for number, record in enumerate(RECORDS)]
    assert Draw(3, "n").samples(edited) != Draw(3, "n").samples(RECORDS)


def test_without_a_nonce_two_draws_differ_and_one_can_be_repeated():
    one, other = Draw(3), Draw(3)
    assert one.nonce != other.nonce
    assert Draw(3, one.nonce).samples(RECORDS) == one.samples(RECORDS)


def test_more_samples_than_there_are_are_all():
    assert {*Draw(1000, "n").samples(RECORDS)} == {record["sample"] for record in RECORDS}


@pytest.mark.parametrize("forged", [24, 8])
def test_a_forged_sample_is_drawn_as_often_as_chance_says(forged):
    """Of 40 samples 24 (60 %): 3 draws without replacement miss all with C(16, 3) / C(40, 3) = 5.7 % < 0.4³ = 6.4 %."""
    false = {f"s{number}" for number in range(forged)}
    tries = 3000
    found = sum(not false.isdisjoint(Draw(3, f"nonce {number}").samples(RECORDS)) for number in range(tries)) / tries
    exact = 1 - math.comb(40 - forged, 3) / math.comb(40, 3)
    assert exact >= 1 - (1 - forged / 40) ** 3
    assert abs(found - exact) < 4 * math.sqrt(exact * (1 - exact) / tries)
    assert found >= 0.93 or forged < 24


@pytest.mark.parametrize(("count", "nonce"), [(0, "n"), (-1, "n"), (3, ""), (3, "a\nb")])
def test_no_samples_and_nonces_that_cannot_be_typed_are_refused(count, nonce):
    with pytest.raises(UserError):
        Draw(count, nonce)
