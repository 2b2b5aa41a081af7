"""Models that read something else than a growing text with a decoder: encoders, images, a text again (LongRoPE)."""

import pytest
import torch
from transformers import (
    BartConfig,
    BartForConditionalGeneration,
    CLIPVisionConfig,
    LlamaConfig,
    LlavaConfig,
    LlavaForConditionalGeneration,
    Phi3Config,
    Phi3ForCausalLM,
)

import kvbench
from kvbench.errors import UserError
from kvbench.integrations.generate import CompressedCache
from tests.support.tiny import prompt

LONG = {"max_new_tokens": 10, "do_sample": False, "pad_token_id": 0}
SMALL = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4}


def test_a_model_with_an_encoder_is_refused_as_such():
    """The line said that the pass had no cache."""
    layers = {"encoder_layers": 2, "decoder_layers": 2, "encoder_attention_heads": 4, "decoder_attention_heads": 4}
    small = {
        "vocab_size": 97,
        "d_model": 32,
        "encoder_ffn_dim": 32,
        "decoder_ffn_dim": 32,
        "max_position_embeddings": 99,
    }
    model = BartForConditionalGeneration(BartConfig(**small, **layers)).eval()
    refused = pytest.raises(UserError, match="BartForConditionalGeneration reads its prompt with an encoder")
    with refused, kvbench.compress(model, "snapkv", ratio=0.5):
        pytest.fail("the block ran")
    assert model.config._attn_implementation == "sdpa"


def test_images_in_a_block_are_refused_as_such():
    """The line said that the pass had no cache."""
    text = LlamaConfig(vocab_size=97, pad_token_id=0, bos_token_id=1, eos_token_id=None, **SMALL)
    images = CLIPVisionConfig(image_size=16, patch_size=8, projection_dim=16, **SMALL)
    config = LlavaConfig(vision_config=images.to_dict(), text_config=text.to_dict(), image_token_index=96)
    model, ids = LlavaForConditionalGeneration(config).eval(), prompt(60).clamp(max=95)
    ids[5:9] = 96
    refused = pytest.raises(UserError, match="CLIPAttention attends to later tokens, as encoders of images")
    with refused, kvbench.compress(model, "streaming_llm", budget=20):
        model.generate(ids[None], pixel_values=torch.ones(1, 3, 16, 16), **LONG)


def test_an_answer_beyond_longropes_length_is_refused_as_such_outside_a_block():
    """The line said that the pass had no cache: generate had left it."""
    rope = {"rope_type": "longrope", "rope_theta": 1e4, "short_factor": [1.0] * 4, "long_factor": [2.0] * 4}
    lengths = {"original_max_position_embeddings": 64, "max_position_embeddings": 512}
    config = Phi3Config(vocab_size=97, rope_parameters=rope, pad_token_id=0, eos_token_id=None, **SMALL, **lengths)
    model = Phi3ForCausalLM._from_config(config, attn_implementation="kvbench").eval()
    with pytest.raises(
        UserError, match=r"65 tokens: beyond 64 this model uses other RoPE frequencies \(rope_type=long"
    ):
        model.generate(prompt(60)[None], past_key_values=CompressedCache(model, "full"), **LONG)
