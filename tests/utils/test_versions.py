"""Versions of objects and of the parts that they hold."""

from dataclasses import dataclass, field

from kvbench.utils.versions import Versioned, raised, versions


class Part(Versioned): ...


class Corrected(Part):
    version = 3


@dataclass
class Whole(Versioned):
    part: Part = field(default_factory=Part)
    others: tuple = ()
    named: dict = field(default_factory=dict)
    text: str = "version"


def test_everything_is_at_version_1_until_it_gets_another():
    assert versions(Whole()) == {"Part": 1, "Whole": 1}
    assert raised(versions(Whole())) == {}
    assert versions(None, "text", 3) == {}


def test_parts_are_found_in_fields_lists_and_dicts():
    for whole in (Whole(Corrected()), Whole(others=(Corrected(),)), Whole(named={"x": [Corrected()]})):
        assert versions(whole)["Corrected"] == 3
        assert raised(versions(whole)) == {"versions": {"Corrected": 3}}


def test_a_subclass_has_the_version_of_its_base_until_it_gets_its_own():
    assert versions(type("Further", (Corrected,), {})()) == {"Further": 3}
    assert versions(type("Further", (Corrected,), {"version": 4})()) == {"Further": 4}
