"""Which layers have a sliding window is read from a model's configuration."""

import pytest
from transformers import LlamaConfig, Phi3Config

from kvbench.errors import UserError
from kvbench.models.layer_windows import full_layers, sliding_windows, windows_of
from tests.support.sliding import CONFIGS, LAYERS, WINDOW


@pytest.mark.parametrize(
    ("family", "full"), [("gemma3", [2, 5]), ("qwen2", [0, 1, 2]), ("gemma2", [1, 3, 5]), ("gpt_oss", [1, 3, 5])]
)
def test_layers_of_a_mixed_model_keep_their_kind_at_any_length(family, full):
    windows = windows_of(CONFIGS[family]())
    assert windows == tuple(None if layer in full else WINDOW for layer in range(LAYERS))
    assert full_layers(windows) == full
    assert sliding_windows(CONFIGS[family](), 3) == windows == sliding_windows(CONFIGS[family](), 300)


def test_where_every_layer_slides_a_prompt_within_the_window_is_read_with_full_attention():
    config = CONFIGS["mistral"]()
    assert windows_of(config) == (WINDOW,) * LAYERS
    assert sliding_windows(config, WINDOW) == (None,) * LAYERS
    assert sliding_windows(config, WINDOW + 1) == (WINDOW,) * LAYERS


def test_a_window_that_no_text_exceeds_is_none():
    config = Phi3Config(sliding_window=4096, max_position_embeddings=4096, num_hidden_layers=2, pad_token_id=0)
    assert windows_of(config) == (None, None) == windows_of(LlamaConfig(num_hidden_layers=2))


@pytest.mark.parametrize("kind", ["chunked_attention", "linear_attention"])
def test_layers_of_other_kinds_are_refused(kind):
    config = LlamaConfig(num_hidden_layers=2)
    config.layer_types = ["full_attention", kind]
    with pytest.raises(UserError, match=f"has layers of '{kind}'"):
        windows_of(config)


def test_layers_that_share_keys_and_values_are_refused():
    config = LlamaConfig(num_hidden_layers=2)
    config.num_kv_shared_layers = 1
    with pytest.raises(UserError, match="read other layers' keys and values"):
        windows_of(config)
