"""Tiny random models of the families and head layouts that kvbench must serve, and synthetic layer states."""

import json
from pathlib import Path

import torch
from transformers import (
    AutoModelForCausalLM,
    LlamaConfig,
    MistralConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Qwen2Config,
    Qwen3Config,
)

from kvbench.cache.base import LayerCache
from kvbench.cache.reserve_ratio import ReserveRatio
from kvbench.methods.kvcompose import WHOLE
from kvbench.models.attention_interface import ATTENTION
from kvbench.ops.column_sums import column_sums
from kvbench.prefill import LayerState, PrefillState
from kvbench.prefill.block_sums import Blocks, BlockSums
from kvbench.prefill.query_moments import query_moments
from kvbench.prefill.reconstruction import ContextScores, Reconstruction

FAMILIES = {"llama": LlamaConfig, "mistral": MistralConfig, "qwen2": Qwen2Config, "qwen3": Qwen3Config}
# name -> (num_attention_heads, num_key_value_heads)
LAYOUTS = {"mha": (4, 4), "gqa": (6, 2), "mqa": (4, 1)}
# Every family, and every layout: layers of a family treat heads as those of another do.
SHAPES = [*((family, "gqa") for family in FAMILIES), *(("llama", layout) for layout in LAYOUTS if layout != "gqa")]

# What presets observe, as tests make them small and as shipped.
REREAD = Reconstruction(WHOLE, 0, 0, None, "mean")
BLOCKS = frozenset({Blocks(16), Blocks(16, 8, 4), Blocks(256), Blocks(256, 8, 4)})


def tiny_config(family: str = "llama", layout: str = "gqa", num_layers: int = 3, head_dim: int = 8):
    heads, kv_heads = LAYOUTS[layout]
    return FAMILIES[family](
        vocab_size=97,
        hidden_size=heads * head_dim,
        intermediate_size=48,
        num_hidden_layers=num_layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_dim,
        max_position_embeddings=512,
        bos_token_id=1,
        eos_token_id=None,
        pad_token_id=0,
        **({"sliding_window": None} if family == "mistral" else {}),
    )


def tiny_model(
    family: str = "llama",
    layout: str = "gqa",
    implementation: str = ATTENTION,
    num_layers: int = 3,
    head_dim: int = 8,
) -> PreTrainedModel:
    """A random model, the same weights for the same arguments whatever the attention implementation.

    Weights are drawn wide, so that attention is far from uniform and greedy tokens differ.
    """
    torch.manual_seed(0)
    config = tiny_config(family, layout, num_layers, head_dim)
    model = AutoModelForCausalLM.from_config(config, attn_implementation=implementation).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.dim() > 1:
                parameter.normal_(0, 0.35)
    return model


def knowing(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase) -> PreTrainedModel:
    """The model with an embedding for every token of a tokenizer."""
    model.resize_token_embeddings(len(tokenizer), mean_resizing=False)
    return model


def keep_first_tokens(file: Path, count: int) -> None:
    """Cut a byte-level BPE's tokenizer.json down to its first tokens, with the merges that make them.

    The ids of special tokens come first, then bytes, then tokens in the order of their merges.
    """
    tokenizer = json.loads(file.read_text(encoding="utf-8"))
    model = tokenizer["model"]
    model["vocab"] = {token: number for token, number in model["vocab"].items() if number < count}
    model["merges"] = [pair for pair in model["merges"] if "".join(pair) in model["vocab"]]
    file.write_text(json.dumps(tokenizer), encoding="utf-8")


def prompt(n: int, seed: int = 0) -> torch.Tensor:
    """Random token ids [n]."""
    return torch.randint(3, 97, (n,), generator=torch.Generator().manual_seed(seed))


def random_layer(
    heads: int = 6,
    kv_heads: int = 2,
    n: int = 40,
    head_dim: int = 8,
    window: int = 32,
    dtype: torch.dtype = torch.float32,
    seed: int = 0,
    rope=None,
    observed: bool = True,
) -> LayerState:
    """A layer state of random vectors with every observation made; without those over all pairs of tokens where not
    `observed`, which take seconds for thousands of tokens."""
    generator = torch.Generator().manual_seed(seed)
    queries, keys, values = (
        torch.randn(count, n, head_dim, generator=generator).to(dtype) for count in (heads, kv_heads, kv_heads)
    )
    if not observed:
        return LayerState(keys, values, head_dim**-0.5, heads, rope, queries[:, -window:])
    sums, lse = column_sums(queries, keys, head_dim**-0.5)
    similarity = torch.rand((), generator=generator).item()
    lookahead = {w: column_sums(queries, keys, head_dim**-0.5, first_causal=max(n - w, 0))[0] for w in (8, 32)}
    state = LayerState(keys, values, head_dim**-0.5, heads, rope, queries[:, -window:], sums, lse, similarity)
    state.lookahead_sums = lookahead
    state.value_output_norm = torch.rand(heads, n, generator=generator)
    for blocks in BLOCKS:
        inside = BlockSums(blocks, n)
        inside.add(queries, keys, 0)
        state.block_sums[blocks] = inside.total()
    scores = torch.rand(kv_heads, n, generator=generator)
    scores[:, :4] = float("inf")
    inner = scores.masked_fill(scores.isposinf(), 0.5)
    state.reconstruction = {Reconstruction(): ContextScores(scores, min(n, 4)), REREAD: ContextScores(inner, 0)}
    if rope is not None:
        state.query_moments = {4: query_moments(queries, rope, 4)}
    return state


def random_state(num_layers: int = 4, **layer) -> PrefillState:
    """A prefill state of random layers, all of one length."""
    seed = layer.pop("seed", 0)
    layers = [random_layer(seed=seed + i, **layer) for i in range(num_layers)]
    for index, made in enumerate(layers):
        made.index, made.num_layers = index, num_layers
    return PrefillState(layers, torch.zeros(97))


def ratio_of(caches: list[LayerCache], state: PrefillState) -> ReserveRatio:
    """The ratios of caches of a state's layers, all of which are compressed."""
    return ReserveRatio.from_layers([c.kept for c in caches], sum(c.nbytes for c in caches), state.nbytes)
