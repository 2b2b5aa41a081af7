"""Tiny random models whose layers are not all attention over keys and values of their own: one of each family."""

from typing import Any

import torch
from transformers import AutoConfig, AutoModelForCausalLM, PreTrainedModel

from kvbench.models.attention_interface import ATTENTION

WINDOW = 12
SHAPE = {
    "vocab_size": 97,
    "hidden_size": 48,
    "intermediate_size": 48,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": None,
    "pad_token_id": 0,
    "tie_word_embeddings": False,
}
LINEAR, FULL, SLIDING = "linear_attention", "full_attention", "sliding_attention"
DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 4,
    "linear_key_head_dim": 8,
    "linear_value_head_dim": 8,
}
EXPERTS = {
    "num_experts": 4,
    "num_experts_per_tok": 2,
    "moe_intermediate_size": 16,
    "shared_expert_intermediate_size": 16,
}
MAMBA = {"mamba_n_heads": 6, "mamba_d_head": 16, "mamba_d_state": 8, "mamba_n_groups": 1, "mamba_expand": 2}
GEMMA = {"sliding_window": WINDOW, "vocab_size_per_layer_input": 97, "hidden_size_per_layer_input": 8}

# model_type, and what differs from SHAPE; `layer_types` has four layers of full attention, as the methods' tests have
# where head scores are read from files
FAMILIES: dict[str, dict[str, Any]] = {
    "qwen3_next": DELTA | EXPERTS | {"layer_types": [LINEAR, FULL] * 4},
    "qwen3_5_text": DELTA | {"layer_types": [LINEAR, FULL] * 4},
    "qwen3_5_moe_text": DELTA | EXPERTS | {"layer_types": [LINEAR, FULL] * 4},
    "olmo_hybrid": DELTA | {"layer_types": [LINEAR, FULL] * 4},
    # short convolutions
    "lfm2": {"layer_types": ["conv", FULL] * 4},
    "lfm2_moe": EXPERTS | {"layer_types": ["conv", FULL] * 4, "num_dense_layers": 2},
    # convolutions, sliding windows and full attention
    "lfm3": {"layer_types": ["conv", SLIDING, FULL] * 4, "sliding_window": WINDOW},
    # state spaces, the last of them after the last layer with attention
    "granitemoehybrid": MAMBA
    | {"layer_types": [LINEAR, FULL] * 4 + [LINEAR], "num_local_experts": 4, "num_experts_per_tok": 2},
    "bamba": MAMBA | {"num_hidden_layers": 9, "attn_layer_indices": [1, 3, 5, 7]},
    "jamba": EXPERTS | {"num_hidden_layers": 8, "attn_layer_period": 2, "attn_layer_offset": 1, "mamba_d_state": 8},
    # and layers that read no other token
    "nemotron_h": {
        "layers_block_type": [LINEAR, "mlp", FULL, "moe"] * 4,
        "mamba_num_heads": 6,
        "mamba_head_dim": 16,
        "ssm_state_size": 8,
        "n_groups": 1,
        "n_routed_experts": 4,
        "num_experts_per_tok": 2,
        "moe_intermediate_size": 16,
        "moe_shared_expert_intermediate_size": 16,
    },
    # chunks: a layer of them attends to what is left of its chunk
    "llama4_text": {"layer_types": ["chunked_attention", FULL] * 4, "attention_chunk_size": WINDOW, "moe_layers": []}
    | {"intermediate_size_mlp": 48, "no_rope_layers": [1, 0] * 4, "num_local_experts": 4},
    # the last four layers attend to keys and values of layers before them
    "gemma3n_text": GEMMA
    | {"layer_types": [SLIDING, FULL] * 6, "num_kv_shared_layers": 4, "activation_sparsity_pattern": [0.0] * 12}
    | {"altup_num_inputs": 2, "laurel_rank": 8},
    "gemma4_text": GEMMA | {"layer_types": [SLIDING, FULL] * 6, "num_kv_shared_layers": 4, "global_head_dim": 32},
}
SHARED = ("gemma3n_text", "gemma4_text")


def hybrid_config(family: str, **more: Any):
    shape = SHAPE | FAMILIES[family] | more
    types = shape.get("layer_types", shape.get("layers_block_type"))
    return AutoConfig.for_model(family, **({"num_hidden_layers": len(types)} if types else {}) | shape)


def hybrid_model(family: str, implementation: str = ATTENTION, **more: Any) -> PreTrainedModel:
    """A random model, the same weights whatever the attention implementation, with wide ones as in `tiny_model`."""
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(hybrid_config(family, **more), attn_implementation=implementation).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1 and "A_log" not in name:
                parameter.normal_(0, 0.35)
    return model
