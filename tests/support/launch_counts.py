"""What decoding, compression and prefill launch, per layer: counted on models with 32 query and 8 KV heads in bfloat16.

A count per layer is the difference between a model of 4 layers and one of 2, divided by 2: what a model does once, such
as embedding and choosing the token, is not in it.
"""

from collections.abc import Callable, Sequence
from functools import cache

import torch
from torch import Tensor
from transformers import AutoModelForCausalLM, LlamaConfig, PreTrainedModel

from kvbench.cache.base import LayerCache
from kvbench.evaluation.decode import batched
from kvbench.evaluation.passes import SharedPass
from kvbench.evaluation.settings import Setting
from kvbench.methods import Method
from kvbench.models.attention_interface import ATTENTION
from kvbench.prefill import Needs, PrefillState, prefill
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


@torch.inference_mode()
def pass_of(one: Setting, model: PreTrainedModel, n: int) -> tuple[PrefillState, int]:
    """The state after the pass that a setting needs over a prompt of n tokens, and the setting's budget."""
    layers = len(model.model.layers)
    budget = one.budget_at(n, layers)
    with FakeDevices():
        return state_of(one.method, model, n, budget), budget


def state_of(method: Method, model: PreTrainedModel, n: int, budget: float) -> PrefillState:
    """What the method's passes over a prompt of n tokens leave."""
    plan = method.plan(n, len(model.model.layers), budget)
    return SharedPass(model, prompt(n), plan, method.needs).state


def prefill_counts(model: PreTrainedModel, n: int, needs: Needs) -> Counts:
    """The pass over a prompt of n tokens with the observations `needs`."""
    return counts_of(lambda: prefill(model, prompt(n), needs))


def compression_counts(one: Setting, model: PreTrainedModel, n: int) -> Counts:
    """From the state after prefill to the caches."""
    state, budget = pass_of(one, model, n)
    return counts_of(lambda: one.method.compress(state, budget))


def window_counts(model: PreTrainedModel, n: int, window: int = 32) -> Counts:
    """The scores that SnapKV selects by: attention of the last queries, summed."""
    with Counting():
        state = prefill(model, prompt(n), Needs(window=window))
    return counts_of(lambda: [layer.window_votes(window) for layer in state.layers])


def decoding_counts(model: PreTrainedModel, n: int, settings: Sequence[tuple[Method, float]]) -> list[Counts]:
    """The forward passes of `STEPS` tokens, decoded by all of `settings` (method, budget) as one batch."""
    caches = []
    for method, budget in settings:
        with FakeDevices(), torch.inference_mode():
            caches.append(method.compress(state_of(method, model, n, budget), budget))
    return [*steps(model, caches)]


def steps(model: PreTrainedModel, caches: Sequence[Sequence[LayerCache]]) -> list[Counts]:
    """Counts of each token after the first two, which may set up what later ones use."""
    with Counting(), torch.inference_mode():
        cache = batched(caches)
    each = []
    for step in range(STEPS + 2):
        ids = token_ids(step, len(caches))
        counts = counts_of(lambda ids=ids: model(input_ids=ids, past_key_values=cache, use_cache=True))
        if step >= 2:
            each.append(counts)
    return each


def token_ids(step: int, rows: int) -> Tensor:
    with Counting():
        return torch.full((rows, 1), step + 3, device="cuda:0")


def typical(each: Sequence[Counts]) -> Counts:
    """The counts of the median token."""
    return sorted(each, key=lambda counts: counts.kernels)[len(each) // 2]


def decoding_per_layer(
    n: int, settings_at: Callable[[int], Sequence[tuple[Method, float]]], name: str = ""
) -> tuple[Counts, Counts]:
    """One token of a batch per layer: of the median step, and the mean over steps, in some of which buffers grow or
    blocks are quantised. `settings_at` gives the batch's methods and budgets for a number of layers; `name` as for
    `per_layer`."""
    four, two = (decoding_counts(counted_model(layers), n, settings_at(layers)) for layers in MODELS.get(name, (4, 2)))
    return (typical(four) - typical(two)) / 2, (mean_of(four) - mean_of(two)) / 2


def mean_of(each: Sequence[Counts]) -> Counts:
    numbers = zip(*(counts.numbers() for counts in each), strict=True)
    return Counts(*(sum(values) / len(each) for values in numbers))
