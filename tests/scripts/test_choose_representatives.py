"""Presets that stand for all: none that is left out takes a step or makes a choice that no other does."""

import pytest

from scripts.maintenance.choose_representatives import representatives, taken
from tests.support.config import NAMES
from tests.support.representatives import CACHES, COVERED, KINDS, REPRESENTATIVES, caches_of, choices_of, kind_of

AGAIN = "run python -m scripts.maintenance.choose_representatives"


def test_a_name_that_adds_nothing_is_left_out():
    assert representatives({"a": {1, 2}, "b": {2}, "c": {3, 4}, "long": {1, 2}}) == ["a", "c"]
    assert representatives({"most": {1, 2, 3}, "a": {1, 2, 4}, "b": {3, 5}}) == ["a", "b"]  # both together make it idle


def test_left_out_presets_are_files_of_conf_method():
    assert set().union(*COVERED.values()) < set(NAMES), AGAIN


def test_representatives_make_every_choice_that_a_preset_makes():
    made = set().union(*map(choices_of, REPRESENTATIVES))
    assert {name: choices_of(name) - made for name in COVERED["steps"] if choices_of(name) - made} == {}, AGAIN


@pytest.mark.slow
def test_representatives_take_every_step_that_a_preset_takes():
    taken(NAMES[:1])  # what is made once
    steps = taken(REPRESENTATIVES)
    assert {name: more for name in COVERED["steps"] if (more := taken([name]) - steps)} == {}, AGAIN


@pytest.mark.heavy
def test_every_preset_has_caches_of_a_kind_that_is_tested():
    for what, kept, kind in (("caches", CACHES, caches_of), ("kinds", KINDS, kind_of)):
        kinds = {kind(name) for name in kept}
        assert [name for name in COVERED[what] if kind(name) not in kinds] == [], AGAIN
