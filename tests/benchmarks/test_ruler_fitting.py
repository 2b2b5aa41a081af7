"""The search for the largest haystack, on haystacks whose tokens are known."""

from dataclasses import dataclass, field
from itertools import islice
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.benchmarks.ruler import fitting
from kvbench.benchmarks.ruler.fitting import DoesNotFit, fitted, largest
from kvbench.benchmarks.ruler.maker import Draft, Maker


@dataclass
class Units(Maker):
    """Haystacks of units of so many letters, after a beginning that may differ by sample; a letter is a token."""

    unit: int = 7
    beginnings: list[int] = field(default_factory=lambda: [50])
    increment: int = 25
    probe: int = 25
    drawn: list[int] = field(default_factory=list)

    def draft(self, size: int, index: int) -> Draft:
        self.drawn.append(size)
        return Draft("b" * self.beginnings[index % len(self.beginnings)] + "u" * self.unit * size, "", [])


@given(st.integers(300, 20_000), st.integers(1, 9), st.integers(0, 100))
def test_the_largest_haystack_fits_and_one_unit_more_does_not(length, unit, new_tokens):
    maker = Units(unit)
    size = largest(maker, length, len, new_tokens)
    assert 50 + unit * size + new_tokens <= length or size == maker.increment
    assert 50 + unit * (size + 1) + new_tokens > length


@given(st.integers(1000, 5000), st.lists(st.integers(0, 400), min_size=1, max_size=8))
def test_every_sample_fits_and_shrinks_by_no_more_increments_than_it_must(length, beginnings):
    maker = Units(unit=3, beginnings=beginnings)
    size = largest(maker, length, len, 10)
    for index, (draft, total) in enumerate(fitted(maker, len(beginnings), length, len, 10)):
        used = draft.text.count("u") // 3
        assert total == len(draft.text) + 10 <= length
        assert (size - used) % 25 == 0
        assert used == size or beginnings[index] + 3 * (used + 25) + 10 > length


def test_the_first_samples_do_not_depend_on_the_count():
    made = [list(fitted(Units(beginnings=[50, 300, 10]), count, 2000, len)) for count in (3, 9)]
    assert made[0] == made[1][:3]


def test_the_smallest_haystack_is_drawn_again_until_luck_helps():
    class Lucky(Units):
        random = Random(0)

        def draft(self, size, index):
            self.beginnings = [self.random.choice([0, 100, 100, 100])]
            return super().draft(size, index)

    maker = Lucky(unit=10)
    samples = list(fitted(maker, 5, 300, len))  # 25 units fit with a beginning of 0 only
    assert [draft.text for draft, _ in samples] == ["u" * 250] * 5
    assert set(maker.drawn[-20:]) == {25}


def test_lengths_too_short_for_the_official_generator_get_smaller_haystacks(monkeypatch):
    monkeypatch.setattr(fitting, "REDRAWS", 10)
    maker = Units(unit=10, beginnings=[50, 100])
    sizes = [draft.text.count("u") // 10 for draft, _ in fitted(maker, 4, 200, len)]
    assert sizes == [15, 9, 15, 9]  # of 25, 23, 21, … 1


def test_luck_is_tried_once_a_task_only(monkeypatch):
    monkeypatch.setattr(fitting, "REDRAWS", 40)
    maker = Units(unit=10)
    list(islice(fitted(maker, 10, 200, len), 10))
    assert 40 < maker.drawn.count(25) < 80


def test_what_cannot_fit_is_an_error(monkeypatch):
    monkeypatch.setattr(fitting, "REDRAWS", 3)
    with pytest.raises(DoesNotFit):
        list(fitted(Units(beginnings=[500]), 1, 300, len))
