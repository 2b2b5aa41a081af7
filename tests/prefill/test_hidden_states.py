"""The hidden state behind attention in layers that scale or norm what they add, or whose MLP stands beside it."""

from copy import deepcopy

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from kvbench.models.attention_interface import ATTENTION
from kvbench.ops.rope import decoder_layers
from kvbench.prefill import Needs, prefill
from tests.support.tiny import prompt

SHAPE = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 48,
    "num_hidden_layers": 3,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "pad_token_id": 0,
}
FULL = {"layer_types": ["full_attention"] * 3}
EXPERTS = {"num_local_experts": 4, "num_experts_per_tok": 2}
# the module that reads the sum, or "" where the MLP reads what attention reads; and what the family needs beside SHAPE
FAMILIES = {
    "granite": ("post_attention_layernorm", {"residual_multiplier": 0.22}),
    "granitemoe": ("post_attention_layernorm", {"residual_multiplier": 0.22} | EXPERTS),
    "glm4": ("post_attention_layernorm", {"head_dim": 8}),  # post_self_attn_layernorm comes before the sum
    "lfm3": ("ffn_norm", FULL),
    "phi3": ("post_attention_layernorm", {}),
    "olmo2": ("mlp", {}),  # whose norms are behind attention and MLP
    "llama4_text": ("post_attention_layernorm", FULL | {"head_dim": 8, "intermediate_size_mlp": 48, "moe_layers": []}),
    "cohere": ("", {}),
    "phi": ("", {}),
}


def random_model(family: str):
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **SHAPE | FAMILIES[family][1])
    model = AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.35)
    return model


@pytest.mark.parametrize("family", FAMILIES)
def test_the_similarity_is_that_of_what_the_model_adds_up(family):
    model, (reader, _) = random_model(family), FAMILIES[family]
    plain, read, added = deepcopy(model), [], []
    for layer in decoder_layers(plain):
        layer.self_attn.register_forward_hook(lambda module, args, output: added.append(output[0][0]))
        if reader:
            getattr(layer, reader).register_forward_pre_hook(lambda module, args: read.append(args[0][0]))
    plain.set_attn_implementation("eager")
    with torch.no_grad():
        before = [hidden[0] for hidden in plain(prompt(20)[None], output_hidden_states=True).hidden_states]
    after = read if reader else [x + dx for x, dx in zip(before, added, strict=False)]
    expected = [torch.cosine_similarity(x, y, dim=-1).mean().item() for x, y in zip(before, after, strict=False)]
    state = prefill(model, prompt(20), Needs(hidden_similarity=True))
    assert [layer.hidden_similarity for layer in state.layers] == pytest.approx(expected, abs=1e-5)
    assert len({round(similarity, 3) for similarity in expected}) == 3
