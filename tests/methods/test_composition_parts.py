"""Every choice of a part composes into every method that takes it, or is refused."""

from importlib import import_module

import pytest
from omegaconf import OmegaConf

from kvbench.config import CONF, choices
from kvbench.errors import UserError
from kvbench.evaluation.settings import build_settings
from kvbench.methods import Allocation, HeadBudgets, Method, Scoring, Storage
from tests.support.config import method_configs
from tests.support.every_method import LAYERS, state

pytestmark = pytest.mark.heavy

# Where each method takes which part; methods that inherit from these by YAML take the same.
TAKEN = {
    "snapkv": ("allocation", "scoring", "storage", "+heads"),
    "adakv": ("allocation", "scoring", "storage", "heads"),
    "pyramidkv": ("allocation", "scoring", "storage", "+heads"),
    "snapkv_codebook": ("allocation", "scoring", "storage"),
    "h2o": ("+allocation", "scoring", "storage", "+heads"),
    "tova": ("allocation", "scoring", "storage", "+heads"),
    "lagkv": ("storage",),
    "spindle": ("+allocation", "+scoring"),
    "squeeze_snapkv": ("policy.allocation", "policy.scoring", "policy.storage"),
    "squeeze": ("policy.storage",),
    "simlayerkv_snapkv": ("others.allocation", "others.scoring", "storage"),
    "simlayerkv": ("storage",),
    "full": ("storage",),
    "minicache": ("storage.storage",),
    "streaming_llm": ("storage",),
    "random_layers": ("storage",),
    "only_lazy_layers": ("storage",),
}


REFUSED_PARTS = {
    (
        "minicache",
        "snapkv",
        "adakv",
        "pyramidkv",
        "snapkv_codebook",
        "h2o",
    ): "MiniCache needs the same tokens in every layer",
    ("minicache", "tova", "lagkv"): "MiniCache needs the same tokens in every layer",
    ("minicache", "squeeze", "squeeze_snapkv", "simlayerkv", "simlayerkv_snapkv"): "MiniCache needs the same tokens",
    ("minicache", "random_layers", "only_lazy_layers"): "MiniCache needs the same tokens in every layer",
    (
        "xkv",
        "snapkv",
        "adakv",
        "pyramidkv",
        "snapkv_codebook",
        "h2o",
    ): "XKV needs the same tokens in every layer",
    ("xkv", "tova", "lagkv"): "XKV needs the same tokens in every layer",
    ("xkv", "squeeze", "squeeze_snapkv", "simlayerkv", "simlayerkv_snapkv"): "XKV needs the same tokens",
    ("xkv", "random_layers", "only_lazy_layers"): "XKV needs the same tokens in every layer",
    ("xkv", "minicache"): "MiniCache cannot put merged layers into XKV",
    ("minicache", "minicache"): "MiniCache cannot put merged layers into MiniCache",
    ("codebook", "minicache"): "MiniCache cannot put merged layers into Codebook",
    ("fp8", "minicache"): "MiniCache cannot put merged layers into Fp8",
    ("think", "only_lazy_layers"): "variant=decode compresses a layer after the prompt's queries are freed",
    ("rerotated", "adakv"): "Rerotated holds the same number of tokens in every head of a layer",
    ("rerotated", "minicache"): "MiniCache cannot put merged layers into Rerotated",
    ("matched", "adakv"): "Matched holds the same number of tokens in every head of a layer",
    ("matched", "minicache"): "MiniCache cannot put merged layers into Matched",
    ("matched", "only_lazy_layers"): "variant=decode compresses a layer after the prompt's queries are freed",
    ("think", "minicache"): "MiniCache cannot put merged layers into ThinK",
    ("turboquant", "minicache"): "MiniCache cannot put merged layers into TurboQuant",
    ("ggml", "minicache"): "MiniCache cannot put merged layers into Ggml",
    ("microscaling", "minicache"): "MiniCache cannot put merged layers into Microscaling",
    ("gear", "minicache"): "MiniCache cannot put merged layers into GEAR",
    ("kvtc", "minicache"): "MiniCache cannot put merged layers into KVTC",
    ("palu", "minicache"): "MiniCache cannot put merged layers into Palu",
    ("kvquant", "minicache"): "MiniCache cannot put merged layers into KVQuant",
    ("pyramid", "squeeze_snapkv"): "divides the budget between layers itself",
    ("skip_layers", "squeeze_snapkv"): "divides the budget between layers itself",
    **{
        (scoring, "spindle"): "it needs granularity=kv_head or layer, not query_head"
        for scoring in (
            "around_context",
            "compactor",
            "cur",
            "expected_attention",
            "keydiff",
            "knorm",
            "kvcompose",
            "kvzip",
            "leverage",
            "random",
            "rkv",
        )
    },
    **{
        key: text
        for weighted in ("preference", "score_entropy")
        for key, text in {
            (weighted, "squeeze_snapkv"): "divides the budget between layers itself",
            (weighted, "simlayerkv_snapkv", "spindle"): "divides the budget by the states of all layers",
        }.items()
    },
    ("pooled", "pyramidkv"): "PooledHeads divides the budget between layers, too",
    ("pooled", "tova"): "PooledHeads shares tokens between heads: granularity=layer",
    ("headkv", "pyramidkv"): "HeadKV divides the budget between layers, too",
    ("headkv", "tova"): "HeadKV shares tokens between heads: granularity=layer",
    ("whole", "pyramidkv"): "WholeHeads divides the budget between layers, too",
    ("whole", "tova"): "WholeHeads shares tokens between heads: granularity=layer",
    ("composite", "pyramidkv"): "CompositeHeads divides the budget between layers, too",
    ("composite", "tova"): "CompositeHeads shares tokens between heads: granularity=layer",
    ("adakv", "tova"): "AdaKV shares tokens between heads: granularity=layer",
    ("heads=lava", "tova"): "LAVaHeads shares tokens between heads: granularity=layer",
    ("linear_pyramid", "squeeze_snapkv"): "divides the budget between layers itself",
}


def part_combinations():
    for name, places in TAKEN.items():
        for place in places:
            group = place.rpartition(".")[2].removeprefix("+")
            for choice in choices(group):
                added, key = place[: place.startswith("+")], place.removeprefix("+")
                yield name, choice, f"{added}{group}@method.{name}.{key}={choice}"


COMBINATIONS = list(part_combinations())
TOGETHER = 6


def in_rounds() -> dict[tuple[str, str], dict[str, str]]:
    """With which overrides of other methods, by name, one is composed: several methods at once take little longer."""
    left: dict[str, list[str]] = {}
    for name, _, override in COMBINATIONS:
        left.setdefault(name, []).append(override)
    rounds = {}
    while left:
        chosen = {name: left[name].pop() for name in list(left)[:TOGETHER]}
        rounds |= {(name, override): chosen for name, override in chosen.items()}
        left = {name: overrides for name, overrides in left.items() if overrides}
    return rounds


ROUNDS = in_rounds()


def composed(name: str, override: str) -> Method:
    """The method with one part chosen; its UserError where it refuses that."""
    chosen = ROUNDS[name, override]
    config = method_configs(*chosen, overrides=tuple(chosen.values()))[name]
    (setting,) = build_settings({name: config}, 0.5, None)
    return setting.method


@pytest.mark.parametrize(("name", "choice", "override"), COMBINATIONS, ids=str)
def test_every_choice_of_a_part_composes_into_every_method_that_takes_it_or_is_refused(name, choice, override):
    parts = (choice, f"{override.lstrip('+').partition('@')[0]}={choice}")  # names of two groups may be the same
    refusals = [text for (part, *names), text in REFUSED_PARTS.items() if part in parts and name in names]
    if refusals:
        with pytest.raises(UserError, match=refusals[0]) as error:
            composed(name, override)
        assert "\n" not in str(error.value)
        return
    made = composed(name, override)
    caches = made.compress(state(60), max(made.minimum_budget, 40))
    assert len(caches) == LAYERS and all(cache.kept.retained for cache in caches)


def test_every_part_of_the_package_is_a_choice_of_its_config_group():
    """What conf/allocation, conf/scoring, conf/storage and conf/heads name are all the parts there are."""
    parts = {"allocation": Allocation, "scoring": Scoring, "storage": Storage, "heads": HeadBudgets}
    for group, base in parts.items():
        named = {OmegaConf.load(CONF / group / f"{choice}.yaml").get("_target_") for choice in choices(group)}
        package = import_module(f"kvbench.methods.{group}")
        parts = {part for part in vars(package).values() if isinstance(part, type) and issubclass(part, base)}
        assert {f"kvbench.methods.{part.__name__}" for part in parts - {base}} <= named
