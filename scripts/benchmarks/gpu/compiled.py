"""What torch.compile makes of layers and of attention with soft caps or sinks, beside what it replaces."""

from collections.abc import Iterator

import torch
from torch import Tensor
from transformers import PreTrainedModel

from kvbench.evaluation.recorded_steps import recording_of
from kvbench.evaluation.settings import Setting
from kvbench.ops import flex_attention
from kvbench.ops.attention import bent_attention, sliding_attention
from kvbench.ops.softmax import Softmax
from scripts.benchmarks.gpu.models import budget_of, prefilled
from scripts.benchmarks.gpu.presets import by_engines
from scripts.benchmarks.gpu.twins import ALLOWED, difference

FUSED = ("full", "snapkv", "kivi", "spindle")  # one of each kind of cache that compiled layers attend to
HEADS, KV_HEADS, WINDOW, CAP = 8, 2, 128, 20.0


@torch.inference_mode()
def fused(settings: list[Setting], model: PreTrainedModel, n: int) -> dict:
    """Tokens of each setting step by step and by fused layers, of which a graph repeats most."""
    if recording_of("auto", model) is None:
        return {"absent": "fused layers need a GPU"}
    compared = {}
    for setting in settings:
        state = prefilled(setting, model, n)
        caches = setting.method.compress(state, budget_of(setting, model, n))
        eager, compiled = by_engines(model, caches, state.logits, "eager", "fused")
        compared[setting.name] = {
            "tokens": compiled.tokens,
            "eager_tokens": eager.tokens,
            "close_call": eager.close_call,
            "engine": compiled.engine,
        }
    return compared


@torch.inference_mode()
def bent(head_dim: int, n: int, dtype: torch.dtype, device: str) -> dict:
    """Attention of n tokens with a soft cap, with sinks and within a window, on the device and on the CPU in float32.

    `fallback`: why torch did not compile it, after which the slower reference computes; None if it did.
    """
    generator = torch.Generator().manual_seed(n)
    heads = (HEADS, KV_HEADS, KV_HEADS)
    drawn = [torch.randn(1, count, n, head_dim, generator=generator).to(dtype) for count in heads]
    sinks = torch.randn(HEADS, generator=generator)
    mine = attended([x.to(device) for x in drawn], sinks.to(device))
    expected = attended([x.float() for x in drawn], sinks)
    gaps = {name: difference(a.cpu(), b) for (name, a), (_, b) in zip(mine, expected, strict=True)}
    found = {name: {"difference": gap, "over_allowed": gap / ALLOWED[dtype]} for name, gap in gaps.items()}
    return {"fallback": next(iter(flex_attention.failures), None), **found}


def attended(tensors: list[Tensor], sinks: Tensor) -> Iterator[tuple[str, Tensor]]:
    """By name, what query, keys and values give with each kind of softmax; all of the prompt, and its last quarter."""
    query, keys, values = tensors
    scaling = query.shape[-1] ** -0.5
    last = query[:, :, -query.shape[2] // 4 :]
    capped, sunk = Softmax(scaling, softcap=CAP), Softmax(scaling, sinks=sinks)
    yield "soft cap", bent_attention(query, keys, values, capped)
    yield "sinks", bent_attention(query, keys, values, sunk)
    yield "soft cap, a chunk", bent_attention(last, keys, values, capped)
    yield "soft cap, window", sliding_attention(query, keys, values, capped, WINDOW)
    yield "sinks, window, a chunk", sliding_attention(last, keys, values, sunk, WINDOW)
