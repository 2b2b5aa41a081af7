"""A context limit beyond a model's positions: refused where these are learned, told where they are computed."""

import pytest
from transformers import LlamaConfig

from kvbench.errors import UserError
from kvbench.models import ModelSpec
from kvbench.models.length_limit import check_length, reach
from scripts.results.tiny_models.tiny import tiny_model

YARN = {"rope_type": "yarn", "rope_theta": 1e4, "factor": 4.0, "original_max_position_embeddings": 512}


def spec(max_length: int | None) -> ModelSpec:
    return ModelSpec("mine", path="/none", max_length=max_length)


@pytest.mark.parametrize("family", ["gpt2", "opt", "gpt_bigcode"])
def test_learned_positions_end(family):
    model = tiny_model(family, "eager")
    check_length(spec(reach(model.config)), model)
    with pytest.raises(UserError, match=r"^model.max_length=4096 is beyond the \d+ tokens that mine has positions for"):
        check_length(spec(4096), model)


@pytest.mark.parametrize("family", ["llama", "nemotron_h", "gemma3_text"])
def test_computed_positions_go_on_and_are_told(family, capsys):
    model = tiny_model(family, "eager")
    check_length(spec(None), model)
    check_length(spec(512), model)
    assert not capsys.readouterr().err
    check_length(spec(4096), model)
    assert "model.max_length=4096 is beyond the 512 tokens" in capsys.readouterr().err.replace("\n", " ")


@pytest.mark.parametrize(
    ("parameters", "longest"),
    [
        ({}, 512),
        (YARN, 2048),
        ({"rope_type": "linear", "rope_theta": 1e4, "factor": 2.0}, 1024),
        ({"rope_type": "default", "rope_theta": 1e4}, 512),
    ],
)
def test_a_scaled_rotation_reaches_further(parameters, longest):
    config = LlamaConfig(max_position_embeddings=512)
    config.rope_parameters = parameters
    assert reach(config) == longest
