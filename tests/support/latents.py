"""Tiny random models with latent attention, one of each family."""

from functools import cache
from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from kvbench.models.attention_interface import ATTENTION

RANK, ROTATED, PLAIN, VALUE, HEADS, LAYERS = 64, 32, 32, 32, 6, 4
SHAPE: dict[str, Any] = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 48,
    "moe_intermediate_size": 16,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": HEADS,
    "num_key_value_heads": HEADS,
    "kv_lora_rank": RANK,
    "q_lora_rank": 16,
    "qk_rope_head_dim": ROTATED,
    "qk_nope_head_dim": PLAIN,
    "v_head_dim": VALUE,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": None,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
GROUPS = {"n_group": 1, "topk_group": 1}
DEEPSEEK = GROUPS | {"n_routed_experts": 4, "num_experts_per_tok": 2, "first_k_dense_replace": 1, "n_shared_experts": 1}
LINEAR = {
    "layer_types": ["linear_attention", "full_attention"] * LAYERS,
    "mlp_layer_types": ["dense", "sparse"] * LAYERS,
    "num_hidden_layers": 2 * LAYERS,
    "num_experts": 4,
    "num_experts_per_token": 2,
    "num_shared_experts": 1,
    "num_expert_group": 1,
    "topk_group": 1,
    "linear_head_dim": 8,
    "linear_num_heads": 4,
}
FAMILIES: dict[str, dict[str, Any]] = {
    "deepseek_v2": DEEPSEEK,
    "deepseek_v3": DEEPSEEK,  # Kimi-K2 as well
    "glm4_moe_lite": GROUPS | {"n_routed_experts": 4, "num_experts_per_tok": 2, "n_shared_experts": 1},
    "minicpm3": {},
    "youtu": {},
    "axk1": DEEPSEEK,
    "longcat_flash": {"num_layers": LAYERS // 2, "moe_topk": 2, "n_routed_experts": 4, "zero_expert_num": 1}
    | {"ffn_hidden_size": 48, "expert_ffn_hidden_size": 16, "head_dim": ROTATED},
    "kimi_linear": LINEAR,  # whose latents have no rotation
    "bailing_hybrid": LINEAR | {"first_k_dense_replace": 1},
}


@cache
def latent_model(family: str = "deepseek_v3", implementation: str = ATTENTION) -> PreTrainedModel:
    """The same weights whatever the attention implementation, drawn wide, so that greedy tokens differ."""
    return made(family, implementation)


def made(family: str, implementation: str = ATTENTION, **more: Any) -> PreTrainedModel:
    shape = SHAPE | FAMILIES[family] | more
    if family == "longcat_flash":
        del shape["num_hidden_layers"]  # two for each of `num_layers`
    torch.manual_seed(0)
    config = AutoConfig.for_model(family, **shape)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=implementation).eval()
    with torch.no_grad():
        for name, weights in model.named_parameters():
            if weights.dim() > 1 and "A_log" not in name:
                weights.normal_(0, 0.35)
    generation = model.generation_config
    generation.eos_token_id, generation.pad_token_id = None, 0
    return model
