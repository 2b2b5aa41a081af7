"""The shape of a configuration: checked before anything reads it."""

import copy

import pytest

from kvbench.config import composed
from kvbench.errors import UserError
from kvbench.utils.config_shape import SHAPE, check_shape
from tests.support.runs import compose

PLAIN = {"decode", "prefill", "wandb"}


def test_the_shape_is_that_of_the_configuration():
    cfg = compose()
    inside = {f"{node}.{key}" for node in PLAIN for key in cfg[node]}
    assert {*SHAPE} == {*cfg} - {"model", "benchmark"} | inside
    check_shape(cfg)


@pytest.mark.parametrize("key", SHAPE)
def test_a_key_that_is_missing_or_a_list_of_mappings_is_one_line(key):
    cfg = copy.deepcopy(compose())
    node, _, name = key.rpartition(".")
    inside = cfg[node] if node else cfg
    inside[name] = {5: [{}]} if key in ("ratio", "budget") else [{}]
    with pytest.raises(UserError, match=rf"^{key}=.* must be "):
        check_shape(cfg)
    del inside[name]
    with pytest.raises(UserError, match=rf"^{key} is missing: leave out ~{key}$"):
        check_shape(cfg)


@pytest.mark.parametrize(
    ("override", "message"),
    [
        ("decode=null", "decode=None must be a mapping {KEY: VALUE}"),
        ("decode=5", "decode=5 must be a mapping {KEY: VALUE}"),
        ("prefill=null", "prefill=None must be a mapping {KEY: VALUE}"),
        ("wandb=x", "wandb='x' must be a mapping {KEY: VALUE}"),
        ("output_dir={a: 1}", "output_dir={'a': 1} must be a text"),
        ("decode.compress=5", "decode.compress=5 must be a mapping {KEY: VALUE} or null"),
        ("limit=99999999999999999999999", "limit: a whole number has at most 18 digits, not 23"),
        ("budget=[64,-1000000000000000000]", "budget: a whole number has at most 18 digits, not 19"),
        ("benchmark.depths=[1000000000000000000]", "benchmark.depths: a whole number has at most 18 digits, not 19"),
    ],
)
def test_what_has_another_shape_is_one_line(override, message):
    with pytest.raises(UserError) as error:
        composed([override])
    assert str(error.value) == message


def test_eighteen_digits_are_allowed():
    assert composed(["limit=999999999999999999"])["limit"] == 10**18 - 1
