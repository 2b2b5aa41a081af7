"""Keys that are rotated back are the projections before RoPE, for every kind of RoPE that transformers has."""

from dataclasses import replace

import pytest
import torch
from transformers import AutoModelForCausalLM, GemmaConfig, GlmConfig, GPTNeoXConfig, LlamaConfig, PhiConfig
from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

from kvbench.errors import UserError
from kvbench.evaluation.decode import generate
from kvbench.methods import FullKV, StreamingLLM
from kvbench.methods.spindlekv.ops.rope_table import rope_table, unturn
from kvbench.models.attention_interface import ATTENTION
from kvbench.ops.rope import Rope, fixed_rotation
from kvbench.prefill import Needs, prefill
from kvbench.probes import NearestVector
from tests.support.config import method
from tests.support.tiny import FAMILIES, prompt, random_layer, tiny_model

TRAINED, N, HEAD_DIM = 32, 90, 16  # a prompt beyond the length that the frequencies were trained for
BASE = {"rope_theta": 10000.0}
SCALED = BASE | {"factor": 4.0, "original_max_position_embeddings": TRAINED}
PARAMETERS = {
    "default": BASE,
    "linear": BASE | {"factor": 4.0},
    "dynamic": SCALED,
    "yarn": SCALED | {"attention_factor": 1.3},
    "longrope": SCALED | {"short_factor": [1.0] * (HEAD_DIM // 2), "long_factor": [2.5] * (HEAD_DIM // 2)},
    "llama3": SCALED | {"low_freq_factor": 1.0, "high_freq_factor": 4.0},
    "proportional": BASE | {"partial_rotary_factor": 0.5},
}
VARYING = {"dynamic", "longrope"}
DTYPES = [torch.float32, torch.bfloat16]
SIZES = {
    "vocab_size": 97,
    "hidden_size": 4 * HEAD_DIM,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "max_position_embeddings": 512,
    "eos_token_id": None,
}
GROUPED = {"num_key_value_heads": 2, "head_dim": HEAD_DIM, "bos_token_id": 1, "pad_token_id": 0}
# Keys of which only a part is rotated, interleaved channels, heads of another width.
LAYOUTS = {
    "partial": PhiConfig(**SIZES, partial_rotary_factor=0.5),
    "interleaved": GlmConfig(**SIZES, **GROUPED, partial_rotary_factor=0.5),
    "wide": GemmaConfig(**SIZES, **GROUPED | {"head_dim": 32}),
}


def rotated_model(kind: str, dtype: torch.dtype = torch.float32):
    trained = {"max_position_embeddings": TRAINED if kind == "dynamic" else 512}
    config = LlamaConfig(**SIZES | trained, **GROUPED, rope_parameters={"rope_type": kind} | PARAMETERS[kind])
    return random_weights(config, dtype)


def random_weights(config, dtype: torch.dtype):
    torch.manual_seed(0)
    return AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION, dtype=dtype).eval()


def projected(model, ids) -> tuple[list, list]:
    """The layers' states after a prefill of ids, and what their key projections gave: [heads, n, head_dim].

    YaRN's attention factor multiplies cos and sin and so the keys that are cached; rotating back leaves it there.
    """
    keys, factor = [], model.base_model.rotary_emb.attention_scaling

    def keep(module, args, output):
        keys.append(factor * output[0].unflatten(-1, (-1, width)).transpose(0, 1))

    width = prefill(model, ids[:2], Needs()).layers[0].keys.shape[-1]
    hooks = [layer.self_attn.k_proj.register_forward_hook(keep) for layer in model.base_model.layers]
    layers = prefill(model, ids, Needs()).layers
    for hook in hooks:
        hook.remove()
    return layers, keys


def check_rotated_back(model, dtype) -> None:
    layers, keys = projected(model, prompt(N))
    for layer, before in zip(layers, keys, strict=True):
        assert not torch.allclose(layer.keys.float(), before.float(), atol=0.1), "nothing was rotated"
        back = fixed_rotation(layer.rope, "test").rotate(layer.keys, -torch.arange(N))
        # cos, sin and the rotated keys of a bfloat16 model are rounded to 8 bits, and so is `back`
        close = 1e-5 if dtype == torch.float32 else 0.03
        assert back.dtype == dtype
        torch.testing.assert_close(back.float(), before.float(), rtol=0, atol=close * before.float().abs().max().item())


def test_every_kind_of_rope_is_tested():
    assert set(PARAMETERS) == {"default", *ROPE_INIT_FUNCTIONS}


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("kind", sorted(set(PARAMETERS) - VARYING))
def test_keys_rotated_back_are_the_projections(kind, dtype):
    check_rotated_back(rotated_model(kind, dtype), dtype)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("layout", LAYOUTS)
def test_partial_interleaved_and_wide_rotations_too(layout, dtype):
    check_rotated_back(random_weights(LAYOUTS[layout], dtype), dtype)


@pytest.mark.parametrize("family", sorted(set(FAMILIES) - {"qwen3"}))  # qwen3 normalises keys before RoPE
def test_families(family):
    check_rotated_back(tiny_model(family), torch.float32)


def test_models_that_keep_their_projections_in_one_matrix():
    """GPT-NeoX rotates a quarter of each head and has no k_proj: rotating forward again gives the same keys."""
    model = random_weights(
        GPTNeoXConfig(**SIZES, rope_parameters=BASE | {"partial_rotary_factor": 0.25}), torch.float32
    )
    (layer, *_), positions = prefill(model, prompt(N), Needs()).layers, torch.arange(N)
    back = layer.rope.rotate(layer.keys, -positions)
    assert torch.equal(back[..., 4:], layer.keys[..., 4:]) and not torch.allclose(back, layer.keys, atol=0.1)
    torch.testing.assert_close(layer.rope.rotate(back, positions), layer.keys, rtol=0, atol=1e-5)


@pytest.mark.parametrize("kind", sorted(VARYING))
def test_methods_that_rotate_refuse_a_rotation_that_varies_with_the_length(kind):
    """Rotating back gave keys that were wrong by their own size, silently."""
    model = rotated_model(kind)
    layers, keys = projected(model, prompt(N))
    back = Rope(layers[0].rope.embedding, layers[0].rope.apply).rotate(layers[0].keys, -torch.arange(N))
    assert (back - keys[0]).abs().max() > 0.1 * keys[0].abs().max()
    rolling = method("streaming_llm", "method.streaming_llm.decode=evict", "method.streaming_llm.rope=rolling")
    for chosen in (method("spindle"), method("snapkv_codebook"), rolling):
        state = prefill(model, prompt(N), chosen.needs)
        with pytest.raises(UserError, match=rf"the length of the text \(rope_type={kind}\)"):
            chosen.compress(state, 60)
    with pytest.raises(UserError, match=f"rope_type={kind}"):
        NearestVector().observe(layers[0], N)
    values = NearestVector("values").observe(layers[0], N)
    assert values.isfinite().all()


@pytest.mark.parametrize("kind", sorted(PARAMETERS))
def test_methods_that_do_not_rotate_take_every_kind(kind):
    """Greedy tokens of FullKV are those of a forward pass over prompt and answer, where frequencies stay."""
    model = rotated_model(kind)
    state = prefill(model, prompt(N), Needs())
    tokens = generate(model, FullKV().compress(state, N), state.logits, 6, frozenset()).tokens
    assert len(tokens) == 6
    if kind != "dynamic":  # its frequencies change with every further token, in `generate` of transformers too
        whole = prefill(model, torch.cat([prompt(N), torch.tensor(tokens[:-1])]), Needs())
        assert whole.logits.argmax().item() == tokens[-1]
    sliding = StreamingLLM(decode="evict").compress(state, 40)
    assert len(generate(model, sliding, state.logits, 6, frozenset()).tokens) == 6


def test_a_model_without_a_rotation_is_refused():
    with pytest.raises(UserError, match="needs a model with rotary position embeddings"):
        fixed_rotation(random_layer().rope, "a test")


def test_a_layer_that_does_not_rotate_has_the_identity():
    rope, keys = Rope.from_model(tiny_model()), torch.randn(2, 5, 8)
    still = replace(rope, still=True)
    assert still != rope and torch.equal(still.rotate(keys, torch.arange(5)), keys)
    assert torch.equal(still.move(keys, 7), keys) and not torch.equal(rope.move(keys, 7), keys)
    table = rope_table(still, 8)
    assert table.pair(keys).equal(keys) and table is not rope_table(rope, 8)
    assert torch.equal(table.turns(still, 5, keys.device)[3], torch.tensor([[1.0, 0.0]] * 4))
    assert torch.equal(unturn(keys[0].clone(), table.turns(still, 5, keys.device)[:5]), keys[0])
