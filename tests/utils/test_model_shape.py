"""A preset's name stands for one network: another one under its name is refused before its weights are read."""

import json

import pytest

from kvbench.configuration import configured
from kvbench.configuration.conf import choices
from kvbench.errors import UserError
from kvbench.models import ModelSpec, load
from kvbench.runner.prerequisites import check_machine
from kvbench.utils.model_shape import NUMBERS, OF_LATENTS, check_shape, shape_of, stores_latents, token_numbers
from tests.support.config import model_config

LLAMA2 = {"num_hidden_layers": 32, "num_attention_heads": 32, "hidden_size": 4096, "vocab_size": 32000}


@pytest.fixture
def narrow(tmp_path):
    """A folder with nothing but the configuration of a network that is 64 wide."""
    config = {"num_hidden_layers": 2, "num_attention_heads": 4, "num_key_value_heads": 2, "hidden_size": 64}
    (tmp_path / "config.json").write_text(json.dumps(config | {"vocab_size": 128256}))
    return tmp_path


@pytest.mark.parametrize("name", sorted({*choices("model")} - {"hf", "llama3-8b-random"}))
def test_every_preset_has_a_shape_whose_heads_divide(name):
    shape = model_config(name)["shape"]
    if stores_latents(shape):  # for all heads
        assert {*shape} == {*NUMBERS, *OF_LATENTS} - {"num_key_value_heads", "head_dim"}
    else:
        assert {*shape} == {*NUMBERS}
        assert shape["num_attention_heads"] % shape["num_key_value_heads"] == 0


def test_numbers_of_a_token_are_those_that_are_stored():
    assert token_numbers(model_config("deepseek-v3")["shape"]) == 576
    assert token_numbers(model_config("llama3-8b")["shape"]) == 2 * 8 * 128
    config = {"num_attention_heads": 128, "hidden_size": 7168, "kv_lora_rank": 512, "qk_rope_head_dim": 64}
    assert token_numbers({name: number for name, number in shape_of(config).items() if number}) == 576
    assert stores_latents(shape_of(config)) and not stores_latents(shape_of(config | {"kv_lora_rank": None}))


def test_another_network_under_a_presets_name_is_one_line_before_anything_is_loaded(narrow):
    with pytest.raises(UserError) as caught:
        check_machine(configured(["model=llama3-8b", f"model.path={narrow}"]))
    assert str(caught.value) == (
        f"model=llama3-8b: {narrow} is a different network (num_hidden_layers 2, not 32; "
        f"num_attention_heads 4, not 32; num_key_value_heads 2, not 8; head_dim 16, not 128); "
        f"model={narrow} runs it under its own name, and "
        "model.shape=null skips the comparison"
    )


def test_without_a_shape_and_under_its_own_name_nothing_is_compared(narrow):
    check_machine(configured(["model=llama3-8b", f"model.path={narrow}", "model.shape=null"]))
    check_machine(configured([f"model={narrow}"]))


def test_what_a_configuration_leaves_out_follows_from_the_rest_or_is_not_compared():
    shape = configured(["model=llama2-7b-chat"]).model.shape
    assert shape_of(LLAMA2) == shape  # as Llama-2's config.json: neither KV heads nor head size
    check_shape("llama2-7b-chat", shape, LLAMA2, "org/name")
    check_shape("llama2-7b-chat", shape, {}, "org/name")


def test_the_numbers_of_a_text_model_within_another_are_its_own():
    assert shape_of({"vocab_size": 7, "text_config": LLAMA2})["vocab_size"] == 32000


def test_the_vocabulary_of_a_fine_tuned_copy_can_be_set(tmp_path):
    (tmp_path / "config.json").write_text(json.dumps(LLAMA2 | {"vocab_size": 32016}))
    common = ["model=llama2-7b-chat", f"model.path={tmp_path}"]
    with pytest.raises(UserError, match="vocab_size 32016, not 32000"):
        check_machine(configured(common))
    check_machine(configured([*common, "model.shape.vocab_size=32016"]))


@pytest.mark.parametrize(
    ("shape", "message"),
    [({"layers": 2}, "unknown key in model.shape 'layers'"), ({"head_dim": 0}, "model.shape.head_dim=0 must be")],
)
def test_a_wrong_shape_is_one_line(shape, message):
    with pytest.raises(UserError, match=message):
        ModelSpec(name="m", hub_id="org/m", shape=shape)


def test_loading_compares_too_before_it_reads_weights(tiny_folder):
    with pytest.raises(UserError, match=r"^model=m: .* is a different network \(num_hidden_layers \d+, not 99\)"):
        load(ModelSpec(name="m", path=str(tiny_folder), shape={"num_hidden_layers": 99}))
