"""What decoding, compression and prefill launch, per layer: counted on models with 32 query and 8 KV heads in bfloat16.

A count per layer is the difference between a model of 4 layers and one of 2, divided by 2: what a model does once, such
as embedding and choosing the token, is not in it.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cache

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from kvbench.cache.base import LayerCache
from kvbench.evaluation.decode import batched
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.evaluation.settings import Setting
from kvbench.methods import Method
from kvbench.models.attention_interface import ATTENTION
from kvbench.models.cache_argument import as_argument
from kvbench.prefill import FullPrefill, Needs, PrefillPlan, PrefillState, prefill
from tests.support.fake_devices import FakeDevices, place
from tests.support.launches import Counting, Counts
from tests.support.tiny import prompt

QUERY_HEADS, KV_HEADS, HEAD_DIM = 32, 8, 32
STEPS = 9
MODELS = {"knorm_paper": (6, 4)}  # layers of the two models, where 4 and 2 will not do: it leaves out the first two


@cache
def counted_model(layers: int) -> PreTrainedModel:
    """A random model on a fake GPU."""
    torch.manual_seed(0)
    config = LlamaConfig(
        vocab_size=97,
        hidden_size=64,
        intermediate_size=48,
        num_hidden_layers=layers,
        num_attention_heads=QUERY_HEADS,
        num_key_value_heads=KV_HEADS,
        head_dim=HEAD_DIM,
        max_position_embeddings=4096,
    )
    model = AutoModelForCausalLM.from_config(config, attn_implementation=ATTENTION, dtype=torch.bfloat16).eval()
    return place(model, gpus=1)


@torch.inference_mode()
def counts_of(work: Callable[[], object]) -> Counts:
    with Counting() as counting:
        work()
    return counting.counts


def per_layer(count: Callable[[PreTrainedModel], Counts], name: str = "") -> Counts:
    """`count` of a model of 4 layers less that of one of 2, over 2; `name` may be a preset that needs more layers."""
    more, fewer = MODELS.get(name, (4, 2))
    return (count(counted_model(more)) - count(counted_model(fewer))) / 2


@cache
def state_of(model: PreTrainedModel, n: int, plan: PrefillPlan, needs: Needs) -> PrefillState:
    """What the passes of a plan over a prompt of n tokens leave; methods do not change it."""
    with FakeDevices(), torch.inference_mode():
        return SharedPass(model, prompt(n), plan, needs).state


def pass_of(method: Method, model: PreTrainedModel, n: int, budget: float) -> PrefillState:
    """The state after the pass that a method needs."""
    return state_of(model, n, method.plan(n, len(model.model.layers), budget), method.needs)


def prefill_counts(model: PreTrainedModel, n: int, needs: Needs) -> Counts:
    """The pass over a prompt of n tokens with the observations `needs`."""
    return counts_of(lambda: prefill(model, prompt(n), needs))


def compression_counts(one: Setting, model: PreTrainedModel, n: int) -> Counts:
    """From the state after prefill to the caches, of the second compression: the first may set up what later ones use,
    such as the model's table of rotations. Scores that settings share count, too."""
    budget = one.budget_at(n, len(model.model.layers))
    state = pass_of(one.method, model, n, budget)
    with FakeDevices(), torch.inference_mode():
        one.method.compress(state, budget)
    fresh = without_results(state)
    return counts_of(lambda: one.method.compress(fresh, budget))


def window_counts(model: PreTrainedModel, n: int, window: int = 32) -> Counts:
    """The scores that SnapKV selects by: attention of the last queries, summed."""
    state = without_results(state_of(model, n, FullPrefill(), Needs(window=window)))
    return counts_of(lambda: [layer.window_votes(window) for layer in state.layers])


def without_results(state: PrefillState) -> PrefillState:
    """The state without what settings have computed once for all (`LayerState.once`), which would launch nothing."""
    return replace(state, layers=[replace(layer) for layer in state.layers])


def decoding_counts(
    model: PreTrainedModel, n: int, settings: Sequence[tuple[Method, float]], tokens: int
) -> list[Counts]:
    """The forward passes of so many tokens, decoded by all of `settings` (method, budget) as one batch."""
    states = [pass_of(method, model, n, budget) for method, budget in settings]
    with FakeDevices(), torch.inference_mode():
        pairs = zip(settings, states, strict=True)
        caches = [method.compress(state, budget) for (method, budget), state in pairs]
    return steps(model, caches, tokens)


def steps(model: PreTrainedModel, caches: Sequence[Sequence[LayerCache]], tokens: int) -> list[Counts]:
    """Counts of each token after the first two, which may set up what later ones use."""
    with FakeDevices(), torch.inference_mode():
        cache = batched(caches)
    each = []
    for step in range(tokens + 2):
        ids = token_ids(step, len(caches))
        counts = counts_of(lambda ids=ids: model(input_ids=ids, **as_argument(model, cache), use_cache=True))
        if step >= 2:
            each.append(counts)
    return each


def token_ids(step: int, rows: int) -> Tensor:
    with FakeDevices():
        return torch.full((rows, 1), step + 3, device="cuda:0")


def typical(each: Sequence[Counts]) -> Counts:
    """The counts of the median token."""
    return sorted(each, key=lambda counts: counts.kernels)[len(each) // 2]


def decoding_per_layer(
    n: int, settings_at: Callable[[int], Sequence[tuple[Method, float]]], name: str = "", tokens: int = STEPS
) -> tuple[Counts, Counts]:
    """One token of a batch per layer: of the median of `tokens` steps, and their mean, in some of which buffers grow or
    blocks are quantised. `settings_at` gives the batch's methods and budgets for a number of layers; `name` as for
    `per_layer`."""
    four, two = (
        decoding_counts(counted_model(layers), n, settings_at(layers), tokens) for layers in MODELS.get(name, (4, 2))
    )
    return (typical(four) - typical(two)) / 2, (mean_of(four) - mean_of(two)) / 2


def mean_of(each: Sequence[Counts]) -> Counts:
    numbers = zip(*(counts.numbers() for counts in each), strict=True)
    return Counts(*(sum(values) / len(each) for values in numbers))
