"""What every preset of conf/method makes of one prompt on a tiny model.

No token is there twice, so no two scores tie, and every choice in a preset's prompt is beyond a margin: none of eight
draws of noise of 1e-6 in the model's weights changes it, and rounding is less. tests/data/golden/seeds.json has the
seeds of prompts for presets whose choices in the first one, of seed 0, are not. Numbers are compared with a tolerance.
"""

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache

import torch
from transformers import PreTrainedModel

from kvbench.evaluation.decode import generate
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.prefill import FullPrefill, PrefillPlan
from kvbench.utils.versions import versions
from tests.golden.files import differences, recorded
from tests.support.config import NAMES
from tests.support.every_method import HEAD_DIM, LAYERS, observed, setting, steps
from tests.support.tiny import tiny_model

N, RATIO, TOKENS, MOST_SEEDS = 90, 0.5, 4, 1000
DISTURBANCES = range(5, 13)  # seeds of the noise: a single draw leaves more than half of the close choices as they are


@cache
def model() -> PreTrainedModel:
    return tiny_model(layout="gqa", num_layers=LAYERS, head_dim=HEAD_DIM)


@cache
def shared_pass(plan: PrefillPlan, seed: int) -> SharedPass:
    ids = 3 + torch.randperm(94, generator=torch.Generator().manual_seed(seed))[:N]
    return SharedPass(model(), ids, plan, observed(plan == FullPrefill()))


@contextmanager
def disturbed(seed: int, noise: float = 1e-6) -> Iterator[None]:
    """Within the block every weight of the model is multiplied by 1 + `noise` times a normal number."""
    before = {name: value.clone() for name, value in model().state_dict().items()}
    generator = torch.Generator().manual_seed(seed)
    shared_pass.cache_clear()
    try:
        with torch.no_grad():
            for weight in model().parameters():
                weight.mul_(1 + noise * torch.randn(weight.shape, generator=generator))
        yield
    finally:
        model().load_state_dict(before)
        shared_pass.cache_clear()


def find_seed(name: str) -> int:
    """The first seed of a prompt in which noise decides nothing of what is recorded of a preset."""
    for seed in range(MOST_SEEDS):
        plain = result(name, seed)
        if not any(changed(name, seed, plain, disturbance) for disturbance in DISTURBANCES):
            return seed
    raise ValueError(f"{name}: rounding decides a choice in each of {MOST_SEEDS} prompts")


def changed(name: str, seed: int, plain: dict, disturbance: int) -> list[str]:
    """What a draw of noise changes of a preset's `plain` result."""
    with disturbed(disturbance):
        return differences(plain, result(name, seed))


def result(name: str, seed: int | None = None) -> dict:
    """One preset's versions, kept positions by layer, bytes, next tokens, and what its caches answer to a query."""
    one = setting(name, RATIO)
    budget = one.budget_at(N, LAYERS, TOKENS)
    seed = recorded("seeds").get(name, 0) if seed is None else seed
    prefilled = shared_pass(one.method.plan(N, LAYERS, budget), seed)
    compressed = prefilled.compress(one.method, budget)
    caches = compressed.caches
    answers = steps(copy.deepcopy(caches), 1)
    # of each layer's answer [1, heads, 1, head_dim]: two numbers and the length
    numbers = [float(x) for out in answers for x in (out[0, 0, 0, 0], out[0, -1, 0, -1], out.norm())]
    return {
        "versions": versions(one.method),
        "kept": [cache.kept.positions and cache.kept.positions.text for cache in caches],
        "bytes": compressed.stored_bytes(caches),
        "tokens": generate(model(), caches, compressed.logits, TOKENS, frozenset()).tokens,
        "numbers": [round(x, 5) for x in numbers],
    }


def results() -> dict[str, dict]:
    return {name: result(name) for name in NAMES}
