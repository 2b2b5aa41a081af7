"""What each layer keeps of a text is read from a model's configuration."""

from contextlib import nullcontext

import pytest
from transformers import LlamaConfig, Phi3Config

from kvbench.errors import UserError
from kvbench.models.layer_kinds import LayerKind, compressed_layers, kinds_at, kinds_of, window_of_all
from tests.support.hybrids import hybrid_config
from tests.support.sliding import CONFIGS, LAYERS, WINDOW

OWN, STATE, NOTHING = LayerKind(), LayerKind("state", states=1), LayerKind("nothing")


@pytest.mark.parametrize(
    ("family", "full"), [("gemma3", [2, 5]), ("qwen2", [0, 1, 2]), ("gemma2", [1, 3, 5]), ("gpt_oss", [1, 3, 5])]
)
def test_layers_of_a_mixed_model_keep_their_kind_at_any_length(family, full):
    kinds = kinds_of(CONFIGS[family]())
    assert kinds == tuple(OWN if layer in full else LayerKind(window=WINDOW) for layer in range(LAYERS))
    assert compressed_layers(kinds) == full
    assert kinds_at(CONFIGS[family](), 3) == kinds == kinds_at(CONFIGS[family](), 300)


def test_where_every_layer_slides_a_prompt_within_the_window_is_read_with_full_attention():
    config = CONFIGS["mistral"]()
    assert kinds_of(config) == (LayerKind(window=WINDOW),) * LAYERS
    assert kinds_at(config, WINDOW - 1) == (OWN,) * LAYERS
    assert kinds_at(config, WINDOW) == (LayerKind(window=WINDOW),) * LAYERS


def test_a_window_that_no_text_exceeds_is_none():
    config = Phi3Config(sliding_window=4096, max_position_embeddings=4096, num_hidden_layers=2, pad_token_id=0)
    assert kinds_of(config) == (OWN, OWN) == kinds_of(LlamaConfig(num_hidden_layers=2))


def test_states_of_fixed_size_and_layers_that_store_nothing_stand_beside_attention():
    assert kinds_of(hybrid_config("qwen3_next")) == (STATE, OWN) * 4
    assert kinds_of(hybrid_config("nemotron_h")) == (STATE, NOTHING, OWN, NOTHING) * 4
    assert kinds_of(hybrid_config("lfm3")) == (STATE, LayerKind(window=WINDOW), OWN) * 4
    assert compressed_layers(kinds_at(hybrid_config("lfm3"), 3)) == [2, 5, 8, 11]


@pytest.mark.parametrize("family", ["gemma3n_text", "gemma4_text"])
def test_the_last_layers_attend_to_keys_and_values_of_the_last_layer_of_their_type_before_them(family):
    kinds = kinds_of(hybrid_config(family))
    assert kinds[:6] == (LayerKind(window=WINDOW), OWN) * 3
    assert kinds[6:8] == (LayerKind(window=WINDOW, readers=2), LayerKind(readers=2))
    assert kinds[8:] == (LayerKind("shared", WINDOW), LayerKind("shared")) * 2
    assert compressed_layers(kinds) == [1, 3, 5, 7]


def test_layers_of_chunks_are_not_compressed_however_short_a_prompt_is():
    config = LlamaConfig(num_hidden_layers=2)
    config.layer_types = ["full_attention", "chunked_attention"]
    with pytest.raises(UserError, match="no attention_chunk_size"):
        kinds_of(config)
    config.attention_chunk_size = 8
    assert kinds_at(config, 3) == kinds_of(config) == (LayerKind(), LayerKind(window=8, chunked=True))


@pytest.mark.parametrize("latent", [16, None])
def test_latents_are_of_every_layer_that_attends_and_of_no_window(latent):
    config = LlamaConfig(num_hidden_layers=2)
    config.layer_types, config.kv_lora_rank = ["full_attention", "linear_attention"], latent
    assert [kind.latent for kind in kinds_of(config)] == [latent is not None, False]
    config.layer_types, config.sliding_window = ["full_attention", "sliding_attention"], 8
    with pytest.raises(UserError, match="latents in layers") if latent else nullcontext():
        kinds_of(config)


@pytest.mark.parametrize("kind", ["hybrid", "indexed_attention"])
def test_layers_of_other_kinds_are_refused(kind):
    config = LlamaConfig(num_hidden_layers=2)
    config.layer_types = ["full_attention", kind]
    with pytest.raises(UserError, match=f"has layers of '{kind}'"):
        kinds_of(config)


def test_models_without_attention_or_with_unknown_sharing_are_refused():
    config = LlamaConfig(num_hidden_layers=2)
    config.layer_types = ["linear_attention"] * 2
    with pytest.raises(UserError, match="no layer with attention"):
        kinds_of(config)
    config = LlamaConfig(num_hidden_layers=2)
    config.num_kv_shared_layers = 1
    with pytest.raises(UserError, match="read other layers' keys and values, and does not say which"):
        kinds_of(config)


@pytest.mark.parametrize(
    "windows, shortest", [([8, 4], 4), ([8, None], None), ([], None)], ids=["all", "some", "no layer attends"]
)
def test_the_window_of_all_layers_is_the_shortest_of_those_that_attend(windows, shortest):
    assert window_of_all((LayerKind("state"), *(LayerKind(window=window) for window in windows))) == shortest
