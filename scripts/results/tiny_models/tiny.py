"""A tiny random model of any causal-LM class, whose configuration is the class's default with small sizes."""

from collections.abc import Mapping, Sequence
from contextlib import suppress
from typing import Any

import torch
from transformers import CONFIG_MAPPING, AutoModelForCausalLM, PreTrainedConfig, PreTrainedModel

LAYERS, HEADS, KV_HEADS, HEAD_DIM = 4, 4, 2, 16
MOST_WEIGHTS = 60_000_000
# Sizes by what their names contain, the first that fits: families name the same size differently.
SIZES: tuple[tuple[Sequence[str], int], ...] = (
    (["vocab_size"], 97),
    (["max_position", "n_positions", "n_ctx", "max_seq", "context_length"], 512),
    (["sliding_window", "attention_window", "window_size", "attention_chunk_size", "local_window"], 12),
    (["num_hidden_layers", "n_layer", "num_layers", "decoder_layers", "encoder_layers"], LAYERS),
    (["num_key_value_heads", "num_kv_heads", "n_head_kv", "key_value_heads"], KV_HEADS),
    (["experts_per_tok", "top_k_experts", "moe_topk", "moe_top_k", "experts_top_k", "moe_k"], 2),
    (["num_experts", "num_local_experts", "n_routed_experts"], 4),
    (["shared_experts", "n_group", "topk_group", "expert_group", "zero_expert"], 1),
    (["qk_rope_head_dim", "qk_nope_head_dim", "v_head_dim", "rotary_dim"], 8),
    (["lora_rank", "latent", "rank"], 16),
    (["mamba_n_heads", "mamba_num_heads"], 8),
    (["mamba_d_ssm"], 64),
    (["num_attention_heads", "n_head", "num_heads", "attention_heads"], HEADS),
    (["head_dim", "d_kv", "d_head"], HEAD_DIM),
    (["intermediate", "ffn", "n_inner", "d_ff", "mlp_dim"], 48),
    (["hidden_size_per_layer_input"], 8),
    (["hidden_size", "d_model", "n_embd", "hidden_dim", "embed_dim"], HEADS * HEAD_DIM),
    (["state_size", "d_state"], 8),
)
NO_SIZE = ("token", "init", "eps")
DERIVED = ("per_layer_config", "model_type", "architectures", "transformers_version", "dtype")


def tiny_model(model_type: str, implementation: str) -> PreTrainedModel:
    """The same weights whatever the attention implementation, drawn wide, so that greedy tokens differ.

    Raises whatever the class does with a configuration that it does not like, and ValueError where it stays large.
    """
    config = tiny_config(model_type)
    with suppress(TypeError), torch.device("meta"):  # some classes draw weights in a way that has no outline
        outline = AutoModelForCausalLM.from_config(config, attn_implementation="eager")
        count = sum(weights.numel() for weights in outline.parameters())
        if count > MOST_WEIGHTS:
            raise ValueError(f"{count / 1e6:.0f} million weights in its smallest configuration")
    torch.manual_seed(0)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=implementation).eval().float()
    with torch.no_grad():
        for weights in model.parameters():
            if weights.dim() > 1:
                weights.normal_(0, 0.35)
    generation = model.generation_config
    generation.eos_token_id, generation.pad_token_id, generation.forced_eos_token_id = None, 0, None
    return model


def tiny_config(model_type: str) -> PreTrainedConfig:
    kind = CONFIG_MAPPING[model_type]
    default = kind()
    sizes = small(default.to_dict())
    types = getattr(default, "layer_types", None)
    computed = getattr(kind, kind.attribute_map.get("layer_types", "layer_types"), None)
    if types and not sizes.get("layer_types") and not isinstance(computed, property):
        sizes["layer_types"] = in_turns(types)
    return kind(**sizes)


def small(config: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration's values with sizes at most those above, lists by layer for as many layers, tokens of the small
    vocabulary; also in the configurations inside it."""
    layers = next(
        (config[name] for name in ("num_hidden_layers", "num_layers", "n_layers", "n_layer") if config.get(name)), 0
    )
    values = {name: one_small(name, value, layers) for name, value in config.items() if name not in DERIVED}
    if "qk_rope_head_dim" in values:  # latent attention: heads have sizes of other names
        values.pop("qk_head_dim", None)
        values["head_dim"] = values["qk_rope_head_dim"]  # which LongCat-Flash rotates; others compute it
        if "num_key_value_heads" in values:
            values["num_key_value_heads"] = HEADS
    for name, size in (("head_dim", HEAD_DIM), ("num_key_value_heads", KV_HEADS), ("num_experts_per_tok", 2)):
        if name in values and values[name] is None:
            values[name] = size
    if "attn_layer_indices" in values:
        values["attn_layer_indices"] = [1, 3]
    if "attn_layer_period" in values:
        values |= {"attn_layer_period": 2, "attn_layer_offset": 1}
    return values


def one_small(name: str, value: Any, layers: int) -> Any:
    if isinstance(value, Mapping):
        return small(value) if name.endswith("config") else value
    if isinstance(value, list):
        return [90] if "token_id" in name else in_turns(value) if layers and len(value) == layers else value
    if isinstance(value, bool) or not isinstance(value, int) or value <= 0:
        return value
    if "token_id" in name:
        return 0 if name == "pad_token_id" else min(value, 90)
    if name == "num_kv_shared_layers":
        return 0
    if name.startswith("num_nextn") or name in ("first_k_dense_replace", "num_dense_layers"):
        return 1
    if any(part in name for part in NO_SIZE) and "experts" not in name:
        return value
    size = next((size for parts, size in SIZES if any(part in name for part in parts)), value)
    return size if name == "hidden_size" else min(value, size)


def in_turns(values: Sequence[Any]) -> list[Any]:
    """A list by layer for LAYERS layers: the first kinds of it, in turns."""
    kinds = []
    for value in values:
        if value not in kinds and len(kinds) < LAYERS:
            kinds.append(value)
    return [kinds[at % len(kinds)] for at in range(LAYERS)]
