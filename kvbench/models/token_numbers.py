"""Sizes of a model's attention, and how many numbers its layers store, from its configuration alone."""

from typing import NamedTuple

from transformers import PreTrainedConfig

from kvbench.models.layer_kinds import kinds_of


class Heads(NamedTuple):
    """Sizes of the layers that attend, or of the first of them if they differ."""

    num_attention_heads: int
    num_key_value_heads: int
    head_dim: int  # of keys


def heads_of(config: PreTrainedConfig) -> Heads:
    """The sizes of a prompt's attention, for which latents are expanded."""
    text = config.get_text_config(decoder=True)
    heads = text.num_attention_heads
    if getattr(text, "kv_lora_rank", None) is not None:
        return Heads(heads, heads, text.qk_nope_head_dim + text.qk_rope_head_dim)
    width = getattr(text, "head_dim", None) or text.hidden_size // heads
    return Heads(heads, getattr(text, "num_key_value_heads", None) or heads, width)


def decoding_heads_of(config: PreTrainedConfig) -> Heads:
    """The sizes of a decoded token's attention, in which all heads read latents."""
    text, heads = config.get_text_config(decoder=True), heads_of(config)
    if getattr(text, "kv_lora_rank", None) is None:
        return heads
    return Heads(heads.num_attention_heads, 1, text.kv_lora_rank + text.qk_rope_head_dim)


class StoredNumbers(NamedTuple):
    keys: int  # of latent attention: latents and rotated keys, which attention reads as keys
    values: int


def stored_numbers(config: PreTrainedConfig, tokens: int, windowed: bool = True) -> StoredNumbers:
    """The numbers of the keys and values of `tokens` tokens in all layers; a sliding layer stores its window's, or with
    windowed=False all.

    Raises UserError for layers for which kvbench has no cache.
    """
    text = config.get_text_config(decoder=True)
    keys = values = 0
    for at, kind in enumerate(kinds_of(config)):
        if kind.keeps != "own":
            continue
        held = tokens if kind.window is None or not windowed else min(tokens, kind.window)
        if kind.latent:
            keys += held * (text.kv_lora_rank + text.qk_rope_head_dim)
            continue
        layer_config = text.per_layer_config[at] if getattr(text, "per_layer_config", None) is not None else text
        _, heads, width = heads_of(layer_config)
        keys += held * heads * width
        values += held * heads * (getattr(layer_config, "v_head_dim", None) or width)
    return StoredNumbers(keys, values)
