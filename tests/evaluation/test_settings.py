"""Settings: what ratios and budgets mean."""

import pytest

from kvbench.errors import UserError
from kvbench.evaluation.settings import build_settings, is_full
from kvbench.methods import Method
from kvbench.records.identity import is_full_record
from tests.support.my_method import MyMethod

FULL = {"about": "text", "_target_": "kvbench.methods.FullKV"}
SNAP = {"_target_": "kvbench.methods.Eviction"}
STREAM = {"_target_": "kvbench.methods.StreamingLLM", "sinks": 4}


def test_every_method_at_every_ratio_and_fullkv_once():
    settings = build_settings({"full": FULL, "snapkv": SNAP, "s": STREAM}, [0.1, 0.2, 0.1], None)
    assert [s.label for s in settings] == ["full", "snapkv 0.1", "snapkv 0.2", "s 0.1", "s 0.2"]
    assert len({s.key for s in settings}) == 5
    assert [s.label for s in build_settings({"s": STREAM}, None, 64)] == ["s 64"]
    assert [s.label for s in build_settings({"s": STREAM}, None, None)] == ["s 0.2", "s 0.4"]


def test_tokens_of_a_ratio_are_its_share_of_the_prompt_rounded_down():
    (setting,) = build_settings({"s": STREAM}, 0.2, None)
    assert [setting.budget_at(n, 32) for n in (1000, 999, 1004)] == [200, 199, 200]
    assert all(
        build_settings({"s": STREAM}, k / 100, None)[0].budget_at(100, 32) == k for k in range(5, 101)
    )  # no float noise
    assert build_settings({"s": STREAM}, None, 64)[0].budget_at(1000, 32) == 64


def test_a_ratio_below_what_is_always_kept_gets_that_and_says_so():
    (setting,) = build_settings({"snapkv": SNAP}, 0.01, None)
    assert (setting.requested_tokens(1000), setting.budget_at(1000, 32)) == (10, 33)


def test_a_methods_parameters_enter_its_key_and_its_description_does_not():
    one, two = (build_settings({"s": STREAM | extra}, 0.2, None)[0].key for extra in ({}, {"sinks": 5}))
    assert one != two
    assert (
        build_settings({"f": FULL}, None, None)[0].key
        == build_settings({"f": FULL | {"about": "x"}}, None, None)[0].key
    )


@pytest.mark.parametrize(
    "config, message",
    [
        ({"sinks": 4}, "method 'm' has no _target_"),
        ({"_target_": "kvbench.methods.Nothing"}, "method 'm': .*Nothing"),
        ({"_target_": "kvbench.methods.StreamingLLM", "sink": 4}, "method 'm': .*sink"),
        (
            {"_target_": "collections.OrderedDict"},
            "OrderedDict is not a subclass of kvbench.methods.Method",
        ),
        ({"_target_": "kvbench.methods.KNorm"}, r"method\.m: .*KNorm is a part of a method, .* is method\.NAME\.m="),
        ({"_target_": "kvbench.methods.StreamingLLM", "decode": "shrink"}, "method 'm': unknown decode 'shrink'"),
    ],
)
def test_a_configuration_that_does_not_build_is_told_in_one_line(config, message):
    with pytest.raises(UserError, match=message) as error:
        build_settings({"m": config}, 0.2, None)
    assert "\n" not in str(error.value)


def test_plain_values_beside_no_target_are_a_mistake():
    with pytest.raises(UserError, match=r"method\.window= needs method\._target_"):
        build_settings({"_target_": None, "window": 3, "s": STREAM}, 0.2, None)


def test_two_names_of_one_method_are_two_settings():
    one, two = build_settings({"a": FULL, "b": FULL}, None, None)
    assert one.parameters == two.parameters
    assert one.key != two.key


@pytest.mark.parametrize("target", [["two.Other"], 5, "", "two", {"a": 1}, False])
def test_an_inline_class_is_a_text_with_a_dot(target):
    with pytest.raises(UserError) as error:
        build_settings({"_target_": target}, 0.5, None)
    assert str(error.value) == f"method._target_={target!r} must be a class as module.Class"


def test_fullkv_is_known_by_its_record_as_by_its_setting():
    for storage, full in (("Dense", True), ("Kivi", False)):
        node = {"_target_": "kvbench.methods.FullKV", "storage": {"_target_": f"kvbench.methods.{storage}"}}
        (setting,) = build_settings({"full": node}, None, None)
        assert is_full(setting) == is_full_record({"parameters": setting.parameters}) == full
    assert not is_full_record({"parameters": '{"_target_": "kvbench.methods.FullKV", "storage": "a word"}'})


@pytest.mark.parametrize("least", ["1", None, 0, 2.5])
def test_a_smallest_budget_that_is_no_number_of_tokens_is_one_line(least, monkeypatch):
    """It was a traceback of a comparison."""
    monkeypatch.setattr(MyMethod, "minimum_budget", least)
    with pytest.raises(UserError, match=rf"method 'mine': minimum_budget={least!r} must be an integer of at least 1"):
        build_settings({"mine": {"_target_": "tests.support.my_method.MyMethod"}}, None, 4)


def test_needs_that_are_a_mapping_are_one_line():
    """It was a traceback, at the first prompt."""
    with pytest.raises(UserError, match=r"method 'mine': needs=\{'window': 8\} must be a Needs, such as Needs"):
        build_settings({"mine": {"_target_": f"{__name__}.Mapped"}}, 0.5, None)


def test_an_unknown_quantity_of_ratios_is_one_line(monkeypatch):
    """It was taken for the prompt."""
    monkeypatch.setattr(MyMethod, "ratio_of", "answer")
    with pytest.raises(UserError, match="method 'mine': ratio_of='answer' must be one of prompt, total, seen"):
        build_settings({"mine": {"_target_": "tests.support.my_method.MyMethod"}}, None, 4)


@pytest.mark.parametrize("floor", ["8", None, True])
def test_a_floor_that_is_no_number_of_tokens_is_one_line(floor, monkeypatch):
    """It was a traceback of a comparison."""
    monkeypatch.setattr(MyMethod, "floor", lambda self, n, num_layers: floor)
    (setting,) = build_settings({"mine": {"_target_": "tests.support.my_method.MyMethod"}}, 0.5, None)
    with pytest.raises(UserError, match=rf"method 'mine': its floor is {floor!r}, and must be a number of tokens"):
        setting.budget_at(100, 4)


class Mapped(Method):
    needs = {"window": 8}  # noqa: RUF012 - the mistake

    def compress_layer(self, layer, index, num_layers, budget):
        """Never called."""
