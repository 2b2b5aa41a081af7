"""The description of a model: what it knows without torch and transformers is what they say."""

import inspect

import pytest
import torch
from transformers import PreTrainedTokenizerBase

from kvbench.configuration.model_spec import DEVICES, OWN_ARGUMENTS
from kvbench.errors import UserError
from kvbench.models import ModelSpec


def test_the_arguments_that_no_template_gets_are_those_of_transformers():
    taken = {*inspect.signature(PreTrainedTokenizerBase.apply_chat_template).parameters}
    assert taken - {"tools", "documents", "kwargs"} == OWN_ARGUMENTS


def test_the_kinds_of_devices_are_those_of_torch():
    with pytest.raises(RuntimeError) as caught:
        torch.device("none")
    listed = str(caught.value).partition("one of ")[2].partition(" device type")[0]
    assert listed.split(", ") == DEVICES


@pytest.mark.parametrize("name", ["cpu", "cuda", "cuda:0", "cuda:12", "mps", "meta"])
def test_a_device_of_torch_is_one(name):
    torch.device(name)
    assert ModelSpec(name="m", hub_id="a/b", device=name).device == name


@pytest.mark.parametrize("name", ["gpu", "cuda:", "cuda:01", "cuda:-1", "CUDA", "cuda:0 ", ""])
def test_what_torch_refuses_is_refused(name):
    with pytest.raises(RuntimeError):
        torch.device(name)
    with pytest.raises(UserError, match="must be auto or a device of torch"):
        ModelSpec(name="m", hub_id="a/b", device=name)
