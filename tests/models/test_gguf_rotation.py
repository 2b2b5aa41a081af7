"""A GGUF file's rotation: transformers computes the file's frequencies, or the file is refused in one line."""

import math

import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType, GGUFReader, GGUFValueType
from transformers import Gemma3ForCausalLM, Gemma3TextConfig, GPT2Config, GPT2LMHeadModel

from kvbench.errors import UserError
from kvbench.models.gguf_rotation import set_rotation
from tests.support.gguf_files import write
from tests.support.tiny import tiny_model

META = {"low_freq_factor": 1.0, "high_freq_factor": 4.0, "original_max_position_embeddings": 8192}


def rotation_of(path, model, divisors=None, architecture="llama", **fields):
    """The rotation of a model's configuration after it took that of a file with these fields and divisors."""
    kinds = {float: GGUFValueType.FLOAT32, int: GGUFValueType.UINT32, str: GGUFValueType.STRING}
    values = {f"{architecture}.{name.replace('__', '.')}": (x, kinds[type(x)]) for name, x in fields.items()}
    tensors = [] if divisors is None else [("rope_freqs.weight", divisors, GGMLQuantizationType.F32)]
    set_rotation(GGUFReader(write(path / "a.gguf", values, tensors, architecture)), model)
    return model.config.rope_parameters


def llama3_divisors(dim: int, base: float, factor: float) -> np.ndarray:
    """As llama.cpp's convert_hf_to_gguf.py writes them."""
    divisors = []
    for frequency in 1.0 / (base ** (torch.arange(0, dim, 2, dtype=torch.float32) / dim)):
        wavelength = 2 * math.pi / frequency
        if wavelength < 8192 / 4:
            divisors.append(1)
        elif wavelength > 8192:
            divisors.append(factor)
        else:
            smooth = (8192 / wavelength - 1) / (4 - 1)
            divisors.append(1 / ((1 - smooth) / factor + smooth))
    return np.array(divisors, dtype=np.float32)


@pytest.mark.parametrize(("dim", "factor"), [(128, 8.0), (64, 32.0)], ids=["llama-3.1-8b", "llama-3.2-1b"])
def test_the_divisors_of_a_llama3_scaling_give_its_published_parameters(tmp_path, dim, factor):
    model = tiny_model(head_dim=dim, num_layers=1)
    divisors = llama3_divisors(dim, 500000.0, factor)
    rotation = rotation_of(tmp_path, model, divisors, rope__freq_base=500000.0)
    assert rotation == {"rope_type": "llama3", "rope_theta": 500000.0, "factor": factor, **META}


def test_other_divisors_are_refused(tmp_path):
    divisors = llama3_divisors(64, 10000.0, 8.0)
    for wrong in (divisors[:-1], divisors * 1.001, np.where(divisors == 1, 1, 2).astype(np.float32)):
        with pytest.raises(UserError, match=r"tensor rope_freqs\.weight is no llama3 scaling"):
            rotation_of(tmp_path, tiny_model(head_dim=64, num_layers=1), wrong)


def test_divisors_that_the_model_computes_anyway_change_nothing(tmp_path):
    model = tiny_model(head_dim=64, num_layers=1)
    before = dict(model.config.rope_parameters)
    assert rotation_of(tmp_path, model, np.ones(32, dtype=np.float32)) == before


@pytest.mark.parametrize(
    ("fields", "parameters"),
    [
        ({}, {}),
        ({"rope__freq_base": 10000.0}, {}),
        ({"rope__freq_base": 1e6}, {"rope_theta": 1e6}),
        ({"rope__scaling__type": "none", "rope__scaling__factor": 4.0}, {}),
        ({"rope__scaling__type": "linear", "rope__scaling__factor": 1.0}, {}),
        ({"rope__scaling__type": "linear", "rope__scaling__factor": 8.0}, {"rope_type": "linear", "factor": 8.0}),
        ({"rope__scaling__factor": 8.0}, {"rope_type": "linear", "factor": 8.0}),
        ({"rope__scale_linear": 2.0}, {"rope_type": "linear", "factor": 2.0}),
        (
            {"rope__scaling__type": "yarn", "rope__scaling__factor": 4.0, "context_length": 512},
            {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 512},
        ),
        (
            {
                "rope__scaling__type": "yarn",
                "rope__scaling__factor": 4.0,
                "rope__scaling__original_context_length": 128,
                "rope__scaling__yarn_beta_fast": 64.0,
                "rope__scaling__yarn_beta_slow": 2.0,
                "rope__scaling__attn_factor": 1.0,
            },
            {
                "rope_type": "yarn",
                "factor": 4.0,
                "original_max_position_embeddings": 128,
                "beta_fast": 64.0,
                "beta_slow": 2.0,
            },
        ),
    ],
)
def test_keys_of_a_scaling_become_transformers_parameters(tmp_path, fields, parameters):
    model = tiny_model(num_layers=1)
    plain = dict(model.config.rope_parameters)
    assert rotation_of(tmp_path, model, **fields) == plain | parameters


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        (
            {"rope__scaling__type": "longrope"},
            r"its rope\.scaling\.type is 'longrope'; kvbench translates linear and yarn",
        ),
        ({"rope__scaling__attn_factor": 1.5}, r"it has rope\.scaling\.attn_factor=1\.5, which transformers has no"),
        ({"rope__scaling__alpha": 1000.0}, r"it has rope\.scaling\.alpha=1000\.0"),
    ],
)
def test_a_scaling_without_an_equal_is_refused(tmp_path, fields, message):
    with pytest.raises(UserError, match=message):
        rotation_of(tmp_path, tiny_model(num_layers=1), **fields)


def test_windows_keep_their_own_rotation(tmp_path):
    config = Gemma3TextConfig(
        vocab_size=97,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=1,
        num_attention_heads=4,
        num_key_value_heads=1,
        head_dim=8,
    )
    windows = dict(config.rope_parameters["sliding_attention"])
    fields = {"rope__scaling__type": "linear", "rope__scaling__factor": 8.0}
    rotation = rotation_of(tmp_path, Gemma3ForCausalLM(config), architecture="gemma3", **fields)
    assert rotation["full_attention"] == {"rope_type": "linear", "rope_theta": 1e6, "factor": 8.0}
    assert rotation["sliding_attention"] == windows


def test_a_model_without_a_rotation_has_none_to_scale(tmp_path):
    model = GPT2LMHeadModel(GPT2Config(vocab_size=97, n_embd=32, n_layer=1, n_head=4))
    set_rotation(GGUFReader(write(tmp_path / "a.gguf", {}, architecture="gpt2")), model)
    with pytest.raises(UserError, match="the file scales a rotation, and transformers' model has none"):
        rotation_of(tmp_path, model, architecture="gpt2", rope__scaling__factor=8.0)
