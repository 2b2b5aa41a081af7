"""Every file of conf/method as a setting that fits prompts of a test; its passes and caches."""

import copy
from dataclasses import replace
from functools import cache, lru_cache, reduce
from operator import or_

import torch
from torch import Tensor

from kvbench.cache.reserve_ratio import ReserveRatio
from kvbench.evaluation import cache_checks
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.evaluation.settings import Setting, build_settings
from kvbench.methods.facts import allowed, most_share, overspends
from kvbench.ops.rope import Rope
from kvbench.prefill import FullPrefill, Needs, PrefillPlan, PrefillState, Reconstruction
from kvbench.prefill.pruned import PrunedPrefill
from kvbench.utils.targets import imported
from tests.support.config import NAMES, SCORES, method_configs
from tests.support.tiny import prompt, random_state, tiny_model

LAYERS, HEADS, HEAD_DIM = 4, 6, 32  # KIVI's groups are of 32 channels


N, STEPS = 120, 12


@cache
def configs(scores: str = SCORES) -> dict[str, dict]:
    return method_configs(*NAMES, scores=scores)


def small(config):
    """A method's configuration with the values of `Stated.short` wherever a part gives one: published windows are
    longer than a test's prompt."""
    if not isinstance(config, dict):
        return config
    short = getattr(imported(config["_target_"]), "short", {}) if "_target_" in config else {}
    config = {key: small(value) for key, value in config.items()}
    return config | {key: value for key, value in short.items() if config.get(key) is not None}


def setting(
    name: str, ratio: float | None = 0.5, budget: int | None = None, shipped: bool = False, scores: str = SCORES
) -> Setting:
    """`scores`: the calibration file, of models with `LAYERS` layers of `HEADS` query heads."""
    config = copy.deepcopy(configs(scores)[name])
    (one,) = build_settings({name: config if shipped else small(config)}, None if budget else ratio, budget)
    return one


@cache
def model():
    return tiny_model(layout="gqa", num_layers=LAYERS, head_dim=HEAD_DIM)


@cache
def observed(second_passes: bool = True) -> Needs:
    """All that any preset reads of a prefill, as shipped or with a test's values."""
    made = [setting(name, shipped=shipped) for name in NAMES for shipped in (False, True)]
    needs = reduce(or_, (one.method.needs for one in made))
    return needs if second_passes else replace(needs, reconstructions=frozenset())


@cache
def shared_pass(n: int, plan: PrefillPlan) -> SharedPass:
    return SharedPass(model(), prompt(n), plan, observed(plan == FullPrefill()))


def pass_of(one: Setting, n: int) -> tuple[SharedPass, int]:
    """The pass that a setting needs, and its budget."""
    budget = one.budget_at(n, LAYERS)
    return shared_pass(n, one.method.plan(n, LAYERS, budget)), budget


# methods whose pruning happens in a pass of their own: layers made up by `state` never went through it
PRUNED = [name for name in NAMES if isinstance(setting(name).method.plan(N, LAYERS, N), PrunedPrefill)]


@cache
def rope() -> Rope:
    return Rope.from_model(tiny_model(head_dim=HEAD_DIM))


@lru_cache(maxsize=128)
def state(n: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> PrefillState:
    """Random layers with heads for KIVI, and all that any method reads; methods leave a state as it is."""
    made = random_state(LAYERS, n=n, head_dim=HEAD_DIM, window=observed().window, dtype=dtype, rope=rope())
    if scale != 1:
        for layer in made.layers:
            layer.keys, layer.values = layer.keys * scale, layer.values * scale
    for layer in made.layers:  # the scores of one second pass stand for those of the others
        scores = layer.reconstruction
        layer.reconstruction = dict.fromkeys(observed().reconstructions, scores[Reconstruction()]) | scores
    return made


def steps(caches, count: int, dtype: torch.dtype = torch.float32, scale: float = 1.0) -> list[Tensor]:
    """What `count` further tokens get for an answer, layer after layer."""
    generator = torch.Generator().manual_seed(7)
    out = []
    for _ in range(count):
        for layer in caches:
            query, key, value = (scale * torch.randn(1, heads, 1, HEAD_DIM, generator=generator) for heads in (6, 2, 2))
            layer.update(key.to(dtype), value.to(dtype))
            out.append(layer.attend(query.to(dtype), HEAD_DIM**-0.5))
    return out


def check_kept(one: Setting, caches, n: int, budget: int, full_bytes: int) -> ReserveRatio:
    """Nominal and realised sizes of a prompt of n tokens, and the ratios."""
    group = 3 if one.method.counts_groups else 1
    ratio = cache_checks.check_kept(caches, n, full_bytes, most_share(one.method, n) + 1e-9, heads=group)
    if one.method.takes_budget and not overspends(one.method):
        cache_checks.check_budget(caches, n, allowed(one.method, budget, n))
    return ratio
