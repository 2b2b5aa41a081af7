"""Tiny random models with sliding windows, soft caps and attention sinks: one for each way of having them."""

import torch
from transformers import (
    AutoModelForCausalLM,
    Gemma2Config,
    Gemma3Config,
    Gemma3TextConfig,
    GptOssConfig,
    MistralConfig,
    PreTrainedModel,
    Qwen2Config,
)

from kvbench.models.attention_interface import ATTENTION

WINDOW = 12
LAYERS = 6
SHAPE = {
    "vocab_size": 97,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 32,
    "max_position_embeddings": 512,
    "bos_token_id": 1,
    "eos_token_id": None,
    "pad_token_id": 0,
    "sliding_window": WINDOW,
    "tie_word_embeddings": False,
}
ALTERNATING = ["sliding_attention", "full_attention"] * (LAYERS // 2)
TWO_OF_THREE = ["sliding_attention", "sliding_attention", "full_attention"] * (LAYERS // 3)
CONFIGS = {
    # other rotations in sliding layers than in full ones
    "gemma3": lambda: Gemma3TextConfig(**SHAPE, layer_types=TWO_OF_THREE, query_pre_attn_scalar=32),
    # the upper layers slide
    "qwen2": lambda: Qwen2Config(**SHAPE, use_sliding_window=True, max_window_layers=3),
    # every layer slides
    "mistral": lambda: MistralConfig(**SHAPE),
    # soft caps low enough to bend logits
    "gemma2": lambda: Gemma2Config(
        **SHAPE, layer_types=ALTERNATING, attn_logit_softcapping=2.0, final_logit_softcapping=5.0
    ),
    # a learned sink in each head
    "gpt_oss": lambda: GptOssConfig(
        **SHAPE, layer_types=ALTERNATING, num_local_experts=4, num_experts_per_tok=2, rope_parameters=None
    ),
}


TEXT = {key: value for key, value in SHAPE.items() if key != "tie_word_embeddings"} | {"layer_types": TWO_OF_THREE}
VISION = {
    "hidden_size": 16,
    "intermediate_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "image_size": 28,
    "patch_size": 14,
}


def beside_an_image_encoder() -> Gemma3Config:
    """The text model of "gemma3" in one that reads images, too, as Gemma-3 from 4B on; ids above 90 are images."""
    images = {"image_token_index": 96, "boi_token_index": 95, "eoi_token_index": 94, "mm_tokens_per_image": 4}
    return Gemma3Config(text_config=TEXT, vision_config=VISION, tie_word_embeddings=False, **images)


def sliding_model(family: str, implementation: str = ATTENTION, config=None) -> PreTrainedModel:
    """A random model, the same weights whatever the attention implementation, with wide ones as in `tiny_model`."""
    torch.manual_seed(0)
    config = CONFIGS[family]() if config is None else config
    model = AutoModelForCausalLM.from_config(config, attn_implementation=implementation).eval()
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.35)
            elif name.endswith("sinks"):
                parameter.normal_(0, 2)
    return model
