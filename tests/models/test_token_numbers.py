"""The numbers of a text's tokens by the configuration are those that FullKV stores."""

import pytest
from transformers import CONFIG_MAPPING

from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.methods import FullKV
from kvbench.models.layer_kinds import kinds_of
from kvbench.models.token_numbers import decoding_heads_of, heads_of, stored_numbers
from kvbench.prefill import FullPrefill, Needs
from scripts.results.tiny_models.tiny import tiny_config
from tests.support.hybrids import FAMILIES, hybrid_model
from tests.support.latents import FAMILIES as LATENT
from tests.support.latents import latent_model
from tests.support.tiny import prompt

N = 30


def stored(model) -> int:
    """Numbers in FullKV's caches, without states."""
    done = SharedPass(model, prompt(N), FullPrefill(), Needs()).compress(FullKV(), N)
    kinds = kinds_of(model.config)
    assert not any(kind.window for kind in kinds), "a window holds one token less"
    return sum(cache.filled_bytes // 4 for cache, kind in zip(done.caches, kinds, strict=True) if kind.keeps != "state")


@pytest.mark.parametrize("family", [name for name in FAMILIES if not name.startswith(("gemma", "lfm3", "llama4"))])
def test_of_layers_with_attention_alone(family):
    model = hybrid_model(family)
    assert sum(stored_numbers(model.config, N)) == stored(model)


@pytest.mark.parametrize("family", LATENT)
def test_of_latents(family):
    model = latent_model(family)
    keys, values = stored_numbers(model.config, N)
    assert (keys, values) == (stored(model), 0)


def test_of_windows_layers_that_store_nothing_and_heads_that_differ():
    keys, values = stored_numbers(tiny_config("gemma4"), N)
    assert keys == values == 2 * (12 * 2 * 16 + N * 2 * 512)  # windows of 12; full layers have heads of 512 channels
    shared = hybrid_model("gemma3n_text").config
    own = [kind for kind in kinds_of(shared) if kind.keeps == "own"]
    assert sum(stored_numbers(shared, 5)) == len(own) * 2 * 5 * 2 * 32 and len(own) < shared.num_hidden_layers


def test_of_released_shapes():
    deepseek, mimo = (CONFIG_MAPPING[name]() for name in ("deepseek_v3", "mimo_v2_flash"))
    assert stored_numbers(deepseek, 1) == (61 * 576, 0)
    assert heads_of(deepseek) == (128, 128, 192) and decoding_heads_of(deepseek) == (128, 1, 576)
    keys, values = stored_numbers(mimo, 1)
    assert keys / values == mimo.head_dim / mimo.v_head_dim > 1
