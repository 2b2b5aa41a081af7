"""Random weights of a given shape."""

import torch

from kvbench.models import load as load_model
from tests.support.runs import compose
from tests.support.speed_runs import spec


def test_random_weights_are_the_same_for_the_same_shape_and_need_no_hub():
    one, same, other = (load_model(each) for each in (spec(), spec(), spec(num_hidden_layers=3)))
    assert all(torch.equal(a, b) for a, b in zip(one.model.parameters(), same.model.parameters(), strict=True))
    assert one.source == same.source != other.source
    assert len(other.model.model.layers) == 3
    assert one.model.dtype == torch.float32
    assert not one.model.training


def test_the_shipped_shape_is_llama_3_8b():
    config = compose("model=llama3-8b-random").model.random
    with torch.device("meta"):
        from transformers import AutoConfig, AutoModelForCausalLM

        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))
    assert sum(p.numel() for p in model.parameters()) == 8_030_261_248  # as the model's card counts them
