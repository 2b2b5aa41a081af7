"""Every preset on the device and on the CPU, from the same tensors: kept sets, stored numbers and tokens."""

import copy
from dataclasses import asdict

import torch
from torch import Tensor
from transformers import PreTrainedModel

from kvbench.cache.base import LayerCache
from kvbench.evaluation.decode import batched, decode_greedily, generate
from kvbench.evaluation.settings import Setting
from kvbench.evaluation.steps import capture_of
from scripts.benchmarks.gpu.models import budget_of, on_cpu, prefilled
from scripts.benchmarks.gpu.twins import Twins

RATIO, STEPS = 0.3, 8
REPEATED = 72  # tokens decoded with and without a CUDA graph: Python makes room for codes, or quantises, in between


@torch.inference_mode()
def preset(one: Setting, model: PreTrainedModel, cpu_model: PreTrainedModel, n: int) -> dict:
    """Prefill on the device; compress and decode there and, from a copy of the state, on the CPU."""
    state, budget = prefilled(one, model, n), budget_of(one, model, n)
    caches, twins = one.method.compress(state, budget), one.method.compress(on_cpu(state), budget)
    kept = [same_kept(a, b) for a, b in zip(caches, twins, strict=True)]
    codes = [same_tensors(a, b) for a, b in zip(caches, twins, strict=True)]
    tokens = generate(model, copy.deepcopy(caches), state.logits, STEPS, frozenset())
    other = generate(cpu_model, twins, state.logits.cpu(), STEPS, frozenset())
    return {
        "kept_equal": all(kept),
        "stored_equal": all(equal for equal, _ in codes),
        "largest_difference": max(gap for _, gap in codes),
        "tokens": tokens.tokens,
        "cpu_tokens": other.tokens,
        "tokens_equal": tokens.tokens == other.tokens,
        "close_call": tokens.close_call,
        **repeated(model, caches, state.logits),
    }


def repeated(model: PreTrainedModel, caches: list[LayerCache], logits: Tensor) -> dict:
    """Tokens by steps that Python launches and by one that a CUDA graph repeats, where the caches allow it."""
    both = [
        generate(model, copy.deepcopy(caches), logits, REPEATED, frozenset(), capture=capture_of(engine, model))
        for engine in ("eager", "auto")
    ]
    eager, graph = both
    packs = [cache.pack() for cache in copy.deepcopy(caches)]
    return {
        "graph_expected": capture_of("auto", model) is not None and all(pack is not None for pack in packs),
        "eager_tokens": eager.tokens,
        "graph_tokens": graph.tokens,
        "graph_steps": graph.repeated,
        "graph_close_call": eager.close_call,
    }


@torch.inference_mode()
def operators(one: Setting, model: PreTrainedModel, n: int) -> dict[str, dict]:
    """Every operator that a setting calls from prompt to tokens, beside its reference."""
    with Twins() as twins:
        state = prefilled(one, model, n)
        cache = batched([one.method.compress(state, budget_of(one, model, n))])
        cache.make_room(STEPS)  # as on a GPU, on every machine
        decode_greedily(model, cache, state.logits[None], STEPS, frozenset())
    return {name: asdict(compared) for name, compared in twins.operators.items()}


def same_kept(a: LayerCache, b: LayerCache) -> bool:
    return a.kept == b.kept


def same_tensors(a: LayerCache, b: LayerCache) -> tuple[bool, float]:
    """Whether two caches store tensors of equal shapes and equal integers (references, codes, bits), and the largest
    difference of the other numbers relative to the largest of them."""
    equal, gap = True, 0.0
    for x, y in zip(a.tensors(), b.tensors(), strict=True):
        if x.shape != y.shape:
            return False, float("inf")
        if x.dtype.is_floating_point:
            gap = max(gap, relative(x.cpu(), y))
        else:
            equal &= torch.equal(x.cpu(), y)
    return equal, gap


def relative(x: Tensor, y: Tensor) -> float:
    """Largest difference over the largest value; elements that were never written may be anything in both."""
    x, y = x.float(), y.float()
    written = x.isfinite() & y.isfinite()
    if not written.any():
        return 0.0
    return float((x - y)[written].abs().max() / y[written].abs().max().clamp_min(1e-12))
