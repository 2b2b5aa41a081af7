"""Every preset on the device and on the CPU, from the same tensors: kept sets, attention and tokens."""

import copy
from collections.abc import Iterator, Sequence
from dataclasses import asdict, replace
from typing import NamedTuple

import torch
from torch import Tensor
from transformers import PreTrainedModel

from kvbench.cache.base import LayerCache
from kvbench.cache.reserve_ratio import Kept
from kvbench.cache.rows import RowsLayer
from kvbench.evaluation.decode import batched, decode, generate
from kvbench.evaluation.generation import Generation
from kvbench.evaluation.recorded_steps import recording_of
from kvbench.evaluation.settings import Setting
from kvbench.ops.operator import use_kernels
from kvbench.prefill import PrefillState
from scripts.benchmarks.gpu.models import budget_of, on_cpu, prefilled
from scripts.benchmarks.gpu.twins import Twins

RATIO, STEPS = 0.3, 8
OUTPUTS = 1e-3  # the largest difference of what is attended to
# Prompts that are tried: of one, rounding may decide which token is the last one kept, or a code of a token that gets
# much attention. scripts/benchmarks/measure_check_rounding.py measures how often, between two sets of CPU kernels.
PROMPTS = 3
REPEATED = 72  # tokens decoded with and without a CUDA graph: Python makes room for codes, or quantises, in between


@torch.inference_mode()
def preset(setting: Setting, model: PreTrainedModel, cpu_model: PreTrainedModel, n: int) -> dict:
    """`of_prompt` for the first prompt with which the CPU gives the same, or for the last one, with what rounding alone
    changes of its attention."""
    for seed in range(PROMPTS):
        result = of_prompt(setting, model, cpu_model, n, seed) | {"prompts": seed + 1}
        if result["kept_equal"] and result["outputs"] <= OUTPUTS and result["tokens_equal"]:
            return result
    return result | {
        "by_rounding": by_rounding(setting, prefilled(setting, model, n, seed), budget_of(setting, model, n))
    }


def by_rounding(setting: Setting, state: PrefillState, budget: int) -> float:
    """How far attention is apart on the CPU after keys and values were rounded otherwise: `outputs` of `compared`."""
    original, generator = on_cpu(state), torch.Generator().manual_seed(0)

    def rounded(x: Tensor) -> Tensor:
        return x * (1 + (torch.rand(x.shape, generator=generator) - 0.5) * 4 * torch.finfo(x.dtype).eps)

    layers = [replace(layer, keys=rounded(layer.keys), values=rounded(layer.values)) for layer in original.layers]
    other = PrefillState(layers, original.logits)
    with use_kernels("torch"):
        caches = [seen(setting.method.compress(each, budget), original) for each in (original, other)]
    return float(compared(*caches)["outputs"])


def of_prompt(setting: Setting, model: PreTrainedModel, cpu_model: PreTrainedModel, n: int, seed: int) -> dict:
    """Prefill on the device; compress and decode there and, from a copy of the state, on the CPU."""
    budget = budget_of(setting, model, n)
    state = prefilled(setting, model, n, seed)
    original = on_cpu(state)
    caches = setting.method.compress(state, budget)
    on_device = seen(caches, original)
    answer = generate(model, copy.deepcopy(caches), state.logits, STEPS, frozenset())
    with use_kernels("torch"):  # what defines the results, whatever else this machine could compute them with
        twins = setting.method.compress(original, budget)
        result = compared(on_device, seen(twins, original))
        cpu_answer = generate(cpu_model, twins, original.logits, STEPS, frozenset())
    return result | {
        "tokens": answer.tokens,
        "cpu_tokens": cpu_answer.tokens,
        "tokens_equal": answer.tokens == cpu_answer.tokens,
        "close_call": answer.close_call,
        **repeated(model, caches, state.logits),
    }


def by_engines(model: PreTrainedModel, caches: list[LayerCache], logits: Tensor, *engines: str) -> Iterator[Generation]:
    """What follows copies of the caches by each engine of `decode.engine`."""
    for engine in engines:
        recording = recording_of(engine, model)
        yield generate(model, copy.deepcopy(caches), logits, REPEATED, frozenset(), recording=recording)


def repeated(model: PreTrainedModel, caches: list[LayerCache], logits: Tensor) -> dict:
    """Tokens by steps that Python launches and by one that a CUDA graph repeats, where the caches allow it."""
    eager, graph = by_engines(model, caches, logits, "eager", "auto")
    repeats = all(isinstance(cache.for_batch(), RowsLayer) for cache in caches)
    return {
        "graph_expected": recording_of("auto", model) is not None and repeats,
        "eager_tokens": eager.tokens,
        "graph_tokens": graph.tokens,
        "graph_steps": graph.repeated,
        "graph_close_call": eager.close_call,
    }


@torch.inference_mode()
def operators(setting: Setting, model: PreTrainedModel, n: int) -> dict[str, dict]:
    """Every operator that a setting calls from prompt to tokens, beside its reference."""
    with Twins() as twins:
        state = prefilled(setting, model, n)
        cache = batched([setting.method.compress(state, budget_of(setting, model, n))])
        cache.make_room(STEPS)  # as on a GPU, on every machine
        decode(model, cache, state.logits[None], STEPS, frozenset())
    return {name: asdict(compared) for name, compared in twins.operators.items()}


class Seen(NamedTuple):
    """What is compared of the caches of all layers, in their order, on the CPU."""

    kept: list[Kept | None]
    outputs: list[Tensor]  # see `attended`


def seen(caches: Sequence[LayerCache], state: PrefillState) -> Seen:
    return Seen([cache.kept for cache in caches], attended(caches, state))


def compared(a: Seen, b: Seen) -> dict:
    """Whether the same tokens are kept, and how far a layer's outputs are apart: the norm of the difference over their
    norm, at most. What is stored is compared by that alone: a number between two levels may be coded as either."""
    pairs = [(x.double(), y.double()) for x, y in zip(a.outputs, b.outputs, strict=True)]
    return {
        "kept_equal": a.kept == b.kept,
        "outputs": max(float((x - y).norm() / y.norm()) for x, y in pairs),
    }


def attended(caches: Sequence[LayerCache], state: PrefillState) -> list[Tensor]:
    """What a further token gets from a copy of each cache, on the CPU: float32 [1, num_attention_heads, 1, head_dim].

    Its query, key and value are drawn for the size of the keys and values of `state`, which is on the CPU: no token has
    nearly all of the attention, and few have much.
    """
    generator, outputs = torch.Generator().manual_seed(1), []

    def drawn(heads: int, like: Tensor, deviation: Tensor) -> Tensor:
        return torch.randn(1, heads, 1, like.shape[-1], generator=generator) * deviation

    for cache, layer in zip(copy.deepcopy(caches), state.layers, strict=True):
        device = cache.tensors()[0].device
        query = drawn(layer.num_attention_heads, layer.keys, 3 / layer.keys.std())
        token = [drawn(layer.num_key_value_heads, x, x.std()).to(device) for x in (layer.keys, layer.values)]
        cache.update(*token)
        outputs.append(cache.attend(query.to(device), layer.scaling).cpu())
    return outputs
