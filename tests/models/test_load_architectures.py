"""Models of today: a tiny random model of each preset's architecture generates what transformers generates."""

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from kvbench.benchmarks import Sample
from kvbench.errors import UserError
from kvbench.evaluation.decode import generate
from kvbench.evaluation.prompts import tokenise
from kvbench.methods import FullKV
from kvbench.models import LoadedModel, ModelSpec
from kvbench.models.attention_interface import ATTENTION
from kvbench.prefill import Needs, prefill
from tests.support.config import method
from tests.support.tiny import knowing, prompt

SWITCH = 64  # where LongRoPE changes its frequencies
LONGROPE = {
    "rope_type": "longrope",
    "rope_theta": 10000.0,
    "partial_rotary_factor": 0.75,
    "short_factor": [1.0, 1.1, 1.2, 1.3, 1.4, 1.5],
    "long_factor": [1.0, 2.0, 4.0, 8.0, 16.0, 32.0],
    "original_max_position_embeddings": SWITCH,
}
LLAMA3 = {
    "rope_type": "llama3",
    "rope_theta": 500000.0,
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
# what sets each preset's architecture apart, at 2 KV heads of 16 channels
ARCHITECTURES = {
    "llama3.1-8b": {"model_type": "llama", "rope_parameters": LLAMA3},
    "llama3.2-1b": {"model_type": "llama", "rope_parameters": {**LLAMA3, "factor": 32.0}, "tie_word_embeddings": True},
    "qwen2.5-7b": {"model_type": "qwen2", "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
    "qwen3-4b": {"model_type": "qwen3", "rope_parameters": {"rope_type": "default", "rope_theta": 1e6}},
    "mistral-nemo": {"model_type": "mistral", "hidden_size": 80, "sliding_window": None},
    "phi4-mini": {"model_type": "phi3", "rope_parameters": LONGROPE, "sliding_window": 262144},
    "phi4-mini, default RoPE": {
        "model_type": "phi3",
        "rope_parameters": {"rope_type": "default", "rope_theta": 1e4, "partial_rotary_factor": 0.75},
    },
}


def tiny(name: str, dtype=torch.float32, implementation=ATTENTION):
    """A random model of an architecture, the same weights for each attention implementation."""
    torch.manual_seed(0)
    shape = {
        "vocab_size": 97,
        "hidden_size": 64,
        "intermediate_size": 48,
        "num_hidden_layers": 3,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "max_position_embeddings": 512,
        "bos_token_id": 1,
        "eos_token_id": None,
        "pad_token_id": 0,
        "tie_word_embeddings": False,
    }
    if ARCHITECTURES[name]["model_type"] != "phi3":
        shape["head_dim"] = 16
    else:
        shape["original_max_position_embeddings"] = SWITCH
    config = AutoConfig.for_model(**(shape | ARCHITECTURES[name]))
    model = AutoModelForCausalLM.from_config(config, attn_implementation=implementation).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.35)
    return model.to(dtype)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("n", [5, 100])
@pytest.mark.parametrize("name", ARCHITECTURES)
def test_full_kv_generates_the_tokens_of_transformers(name, n, dtype):
    stock = tiny(name, dtype, "sdpa")
    expected = stock.generate(prompt(n)[None], do_sample=False, max_new_tokens=24)[0, n:].tolist()
    model = tiny(name, dtype)
    state = prefill(model, prompt(n), Needs())
    assert generate(model, FullKV().compress(state, state.n), state.logits, 24, frozenset()).tokens == expected
    assert len(set(expected)) > 3


@pytest.mark.parametrize("name", ARCHITECTURES)
@pytest.mark.parametrize("compress", [method("snapkv"), method("expected_attention")], ids=["snapkv", "expected"])
def test_methods_compress_every_architecture(name, compress):
    model = tiny(name)
    if name == "phi4-mini" and compress.needs.query_moments:
        with pytest.raises(UserError, match=r"rotation also depends on the length of the text \(rope_type=longrope\)"):
            prefill(model, prompt(100), compress.needs)
        return
    state = prefill(model, prompt(100), compress.needs)
    caches = compress.compress(state, 50)
    assert sum(cache.filled_bytes for cache in caches) < 0.6 * state.nbytes
    assert len(generate(model, caches, state.logits, 8, frozenset()).tokens) == 8


def test_keys_of_a_partial_rotation_are_rotated_back_exactly():
    model = tiny("phi4-mini, default RoPE")
    state = prefill(model, prompt(20), Needs())
    rope, keys = state.layers[0].rope, state.layers[0].keys
    back = rope.rotate(keys, -torch.arange(20))
    assert torch.equal(back[..., 12:], keys[..., 12:])  # 3/4 of 16 channels are rotated
    hidden = model.model.embed_tokens(prompt(20))
    block = model.model.layers[0]
    plain = block.self_attn.qkv_proj(block.input_layernorm(hidden))[:, 64:96].view(20, 2, 16).transpose(0, 1)
    torch.testing.assert_close(back, plain, rtol=1e-4, atol=1e-4)


@pytest.fixture(scope="module")
def phi(embedded):
    """The tiny LongRoPE model with a tokenizer that makes one token of each word."""
    spec = ModelSpec(name="phi4-mini", max_length=512, hub_id="org/phi")
    return LoadedModel(spec, knowing(tiny("phi4-mini"), embedded.tokenizer), embedded.tokenizer, "org/phi")


@pytest.mark.parametrize(
    ("context", "question", "max_new_tokens", "crosses"),
    [
        (60, "", 5, False),  # the fifth new token is never read
        (60, "", 6, True),
        (65, "", 50, False),
        (60, " and" * 4, 1, False),
        (60, " and" * 5, 1, True),
    ],
)
def test_a_text_in_which_longropes_frequencies_change_is_refused(phi, context, question, max_new_tokens, crosses):
    text = "and" + " and" * (context - 1) + question
    sample = Sample("a", text, ("x",), max_new_tokens, question=question, chat=False)
    protocol = "hidden" if question else "visible"
    if not crosses:
        assert len(tokenise(phi, sample, protocol).context) == context
        return
    with pytest.raises(UserError, match=f"sample 'a' goes from {context} to 65 tokens .* frequencies beyond 64"):
        tokenise(phi, sample, protocol)
