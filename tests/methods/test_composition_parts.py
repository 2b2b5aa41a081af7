"""Every choice of a part composes into every method that takes it, or is refused."""

from importlib import import_module

import pytest
from omegaconf import OmegaConf

from kvbench.configuration.conf import CONF, choices
from kvbench.errors import UserError
from kvbench.evaluation.settings import build_settings
from kvbench.methods import Allocation, Dense, HeadBudgets, Kivi, Scoring, Storage
from kvbench.utils.targets import build
from tests.support.config import method_configs, parts
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
    ("think", "only_lazy_layers"): "variant=decode compresses a layer after the prompt's queries are freed",
    ("matched", "only_lazy_layers"): "variant=decode compresses a layer after the prompt's queries are freed",
    ("pyramid", "squeeze_snapkv"): "divides the budget between layers itself",
    ("skip_layers", "squeeze_snapkv"): "divides the budget between layers itself",
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


PLACES = [(name, place) for name, places in TAKEN.items() for place in places]


def group_of(place: str) -> str:
    return place.rpartition(".")[2].removeprefix("+")


def refusal(name: str, group: str, choice: str) -> str | None:
    """What the message says where a method refuses a part; the names of two groups' parts may be the same."""
    keys = (choice, f"{group}={choice}")
    listed = next((text for (part, *names), text in REFUSED_PARTS.items() if part in keys and name in names), None)
    if listed is not None or group not in ("storage", "scoring"):
        return listed
    part = build(parts(group)[choice], choice, Storage if group == "storage" else Scoring)
    return refused_storage(part, name) if isinstance(part, Storage) else refused_scoring(part, name)


def refused_storage(storage: Storage, name: str) -> str | None:
    kind = type(storage).__name__
    if name == "minicache":
        return None if isinstance(storage, Dense | Kivi) else f"MiniCache cannot put merged layers into {kind}"
    if storage.joint:
        return None if name in ("full", "streaming_llm") else f"{kind} needs the same tokens in every layer"
    ragged = name == "adakv" and not storage.takes_ragged
    return f"{kind} holds the same number of tokens in every head of a layer" if ragged else None


def refused_scoring(scoring: Scoring, name: str) -> str | None:
    alone = name == "spindle" and not scoring.per_query_head
    return "it needs granularity=kv_head or layer, not query_head" if alone else None


def check_part(name: str, group: str, choice: str, config: dict) -> None:
    """The method compresses with this part, or its refusal is one line that says why."""
    expected = refusal(name, group, choice)
    if expected is not None:
        with pytest.raises(UserError, match=expected) as error:
            build_settings({name: config}, 0.5, None)
        assert "\n" not in str(error.value)
        return
    (one,) = build_settings({name: config}, 0.5, None)
    caches = one.method.compress(state(60), max(one.method.minimum_budget, 40))
    assert len(caches) == LAYERS and all(cache.kept.retained for cache in caches), choice


def with_part(config: dict, path: str, part: dict) -> dict:
    """A method's configuration with another node at `path`."""
    first, _, rest = path.partition(".")
    return config | {first: with_part(config[first], rest, part) if rest else part}


@pytest.mark.parametrize(("name", "place"), PLACES)
def test_every_choice_of_a_part_fits_into_every_method_that_takes_it_or_is_refused(name, place):
    group, config = group_of(place), method_configs(name)[name]
    for choice, part in parts(group).items():
        check_part(name, group, choice, with_part(config, place.removeprefix("+"), part))


def on_the_command_line() -> dict[str, list[tuple[str, str]]]:
    """By method, (choice, override): all choices of a group are divided between the places that take it."""
    overrides: dict[str, list[tuple[str, str]]] = {}
    for group in {group_of(place): None for _, place in PLACES}:
        places = [(name, place) for name, place in PLACES if group_of(place) == group]
        every = choices(group)
        for number, (name, place) in enumerate(places):
            for choice in every[number % len(every) :: len(places)]:
                added, key = place[: place.startswith("+")], place.removeprefix("+")
                overrides.setdefault(name, []).append((choice, f"{added}{group}@method.{name}.{key}={choice}"))
    return overrides


def test_parts_are_chosen_on_the_command_line():
    """Of several methods at once, which takes little longer than of one."""
    left = on_the_command_line()
    while left:
        chosen = {name: left[name].pop() for name in list(left)[:6]}
        configs = method_configs(*chosen, overrides=tuple(override for _, override in chosen.values()))
        for name, (choice, override) in chosen.items():
            check_part(name, override.lstrip("+").partition("@")[0], choice, configs[name])
        left = {name: overrides for name, overrides in left.items() if overrides}


def test_every_part_of_the_package_is_a_choice_of_its_config_group():
    """What conf/allocation, conf/scoring, conf/storage and conf/heads name are all the parts there are."""
    parts = {"allocation": Allocation, "scoring": Scoring, "storage": Storage, "heads": HeadBudgets}
    for group, base in parts.items():
        named = {OmegaConf.load(CONF / group / f"{choice}.yaml").get("_target_") for choice in choices(group)}
        package = import_module(f"kvbench.methods.{group}")
        parts = {part for part in vars(package).values() if isinstance(part, type) and issubclass(part, base)}
        assert {f"kvbench.methods.{part.__name__}" for part in parts - {base}} <= named
