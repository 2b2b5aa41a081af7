"""Allocation × scoring × granularity × storage on the command line, presets, and what is refused."""

import re

import pytest
import torch

from kvbench.configuration.conf import CONF
from kvbench.errors import UserError
from kvbench.evaluation.settings import build_settings
from kvbench.methods import (
    H2O,
    ColumnSums,
    Dense,
    Eviction,
    FullKV,
    Kivi,
    MiniCache,
    PoolingMerge,
    Pyramid,
    PyramidInfer,
    RandomLayers,
    SimLayerKV,
    SqueezeAttention,
    StreamingLLM,
    WindowAttention,
)
from kvbench.runner.request import check_memory
from tests.support.config import NAMES, method, method_configs
from tests.support.tiny import random_state

KIVI = "storage@method.{}.storage=kivi"


PER_HEAD = {"granularity": "query_head"}


BUILT = {
    ("h2o", KIVI): H2O(storage=Kivi()),
    ("h2o", KIVI, "method.h2o.storage.bits=2"): H2O(storage=Kivi(2)),
    ("h2o", "+allocation@method.h2o.allocation=pyramid"): H2O(allocation=Pyramid()),
    ("streaming_llm", KIVI): StreamingLLM(storage=Kivi()),
    ("streaming_llm", "storage@method.streaming_llm.storage=minicache"): StreamingLLM(storage=MiniCache()),
    ("snapkv", "scoring@method.snapkv.scoring=column_sums"): Eviction(scoring=ColumnSums()),
    ("pyramidkv", "scoring@method.pyramidkv.scoring=column_sums"): Eviction(Pyramid(), ColumnSums()),
    ("pyramidkv_kivi4", "scoring@method.pyramidkv_kivi4.scoring=column_sums"): Eviction(
        Pyramid(), ColumnSums(), storage=Kivi()
    ),
    ("snapkv", "allocation@method.snapkv.allocation=pyramid"): Eviction(allocation=Pyramid()),
    ("snapkv", "method.snapkv.storage.layout=union", "method.snapkv.granularity=query_head"): Eviction(
        storage=Dense("union"), **PER_HEAD
    ),
    ("random_layers", KIVI): RandomLayers(storage=Kivi()),
    ("pyramidkv_kivi4",): Eviction(Pyramid(), WindowAttention(8), storage=Kivi()),
    ("minicache_kivi4",): FullKV(MiniCache(storage=Kivi())),
    ("squeeze", "storage@method.squeeze.policy.storage=kivi"): SqueezeAttention(policy=StreamingLLM(storage=Kivi())),
    ("squeeze_snapkv",): SqueezeAttention(policy=Eviction()),
    ("simlayerkv_snapkv",): SimLayerKV(others=Eviction()),
    ("simlayerkv_snapkv", KIVI): SimLayerKV(others=Eviction(storage=Kivi()), storage=Kivi()),
    ("simlayerkv_kivi4",): SimLayerKV(others=FullKV(Kivi()), storage=Kivi()),
    ("simlayerkv_decode_kivi4",): SimLayerKV("decode", others=FullKV(Kivi()), storage=Kivi()),
    # presets of published settings
    ("pyramidkv_paper",): Eviction(Pyramid(20, "official"), WindowAttention(8, 7, "max"), **PER_HEAD),
    ("pyramidkv_paper_snapkv",): Eviction(scoring=WindowAttention(8, 7, "max"), **PER_HEAD),
    ("pyramidkv_paper_snapkv_niah",): Eviction(scoring=WindowAttention(32, 7, "max"), **PER_HEAD),
    ("pyramidkv_paper_h2o",): H2O(scoring=ColumnSums(8, "sum"), decode="grow", **PER_HEAD),
    ("pyramidkv_paper_h2o_niah",): H2O(scoring=ColumnSums(32, "sum"), decode="grow", **PER_HEAD),
    ("pyramidkv_paper_streaming_llm",): StreamingLLM(4, "grow", "original"),
    ("pyramidkv_paper_streaming_llm_niah",): StreamingLLM(None, "grow", "original", recent=32),
    ("pyramidkv_paper_2024_06",): Eviction(Pyramid(20, "official_2024_06"), WindowAttention(8, 7, "max"), **PER_HEAD),
    ("pyramidkv_paper_snapkv_2024_06",): Eviction(scoring=WindowAttention(32, 7, "max"), **PER_HEAD),
    ("pyramidkv_paper_h2o_2024_06",): Eviction(scoring=WindowAttention(32, 1, "max"), **PER_HEAD),
    ("pyramidkv_paper_streaming_llm_2024_06",): StreamingLLM(None, "grow", "original", recent=32),
    ("pyramidkv_paper_h2o_2024_10",): H2O(scoring=ColumnSums(8, "sum", causal=False), **PER_HEAD),
    ("pyramidkv_paper_h2o_niah_2024_10",): H2O(scoring=ColumnSums(32, "sum", causal=False), **PER_HEAD),
    ("simlayerkv_paper_streaming_llm",): SimLayerKV("decode", 0.0, 4, 1024, include_current=True),
    ("snapkv_paper",): Eviction(scoring=WindowAttention(32, 7, "max"), **PER_HEAD),
    ("simlayerkv_paper",): SimLayerKV("decode", 0.9, 4, 1024, include_current=True),
    ("simlayerkv_paper_q4",): SimLayerKV(
        "decode", 0.9, 4, 1024, include_current=False, others=FullKV(Kivi(4, 32, 32)), storage=Kivi(4, 32, 32)
    ),
    ("kivi_longbench_2bit",): FullKV(Kivi(2, 32, 128)),
    ("kivi_longbench_4bit",): FullKV(Kivi(4, 32, 128)),
    ("longctx_h2o",): H2O(scoring=ColumnSums(None, "sum"), decode="update", **PER_HEAD),
}


@pytest.mark.parametrize("arguments", BUILT, ids=" ".join)
def test_the_command_line_builds_what_it_says(arguments):
    name, *overrides = arguments
    assert method(name, *(override.format(name) for override in overrides)) == BUILT[arguments]


# Each file's own granularity with what its comment says of others: "query_head, with group_reduce=mean: each query …".
COMMENTS = {
    name: comment
    for name in NAMES
    for comment in re.findall(
        r"(?m)^granularity: \w+ # ([^:\n]*)", (CONF / "method" / f"{name}.yaml").read_text("utf-8")
    )
}


@pytest.mark.parametrize("name", COMMENTS)
def test_a_granularity_is_taken_as_its_comment_says(name):
    beside = re.findall(r"\w+=\w+", COMMENTS[name])
    other = re.findall(r"\b(?:kv_head|query_head|layer)\b", COMMENTS[name])
    assert other
    for granularity in other:
        changes = (f"method.{name}.{change}" for change in (f"granularity={granularity}", *beside))
        assert method(name, *changes).granularity == granularity


CHANGED = {"snapkv", "snapkv_kivi4", "snapkv_paper"}


# Composing takes Hydra time that grows with the square of the methods.
@pytest.mark.heavy
@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.slow)], ids=["every fifth", "all"])
def test_methods_can_be_chosen_in_one_run_and_changed_apart(step):
    names = sorted(CHANGED | set(NAMES[::step]), key=NAMES.index)
    configs = method_configs(*names, overrides=("storage@method.snapkv.storage=kivi", "method.snapkv.storage.bits=2"))
    settings = build_settings(configs, 0.5, None)
    assert [setting.name for setting in settings] == names
    assert len({config["about"] for config in configs.values()}) == len(names)
    by_name = {setting.name: setting.method for setting in settings}
    assert by_name["snapkv"].storage == Kivi(2)
    assert by_name["snapkv_kivi4"].storage == Kivi(4) and by_name["snapkv_paper"].storage == Dense()


UNION = "+method.{}.storage.layout=union"


REFUSED = {
    ("full", UNION): "layout=union .* FullKV",
    ("streaming_llm", UNION): "layout=union .* StreamingLLM",
    ("random_layers", UNION): "layout=union .* RandomLayers",
    ("simlayerkv", UNION): "layout=union .* FullKV",
    ("minicache", "+method.minicache.storage.storage.layout=union"): "layout=union .* MiniCache",
    ("kivi", UNION): "unknown parameter of Kivi 'layout'. Allowed: bits, group, key_bits, layers_file, residual",
    ("snapkv", "method.snapkv.storage.layout=union"): "layout=union .* granularity=kv_head",
    ("h2o", "method.h2o.storage.layout=union"): "layout=union .* granularity=kv_head",
    ("simlayerkv_snapkv", "method.simlayerkv_snapkv.storage.layout=union"): "layout=union .* granularity=kv_head",
    ("squeeze_snapkv", "method.squeeze_snapkv.policy.storage.layout=union"): "layout=union .* granularity=kv_head",
    (
        "snapkv",
        "method.snapkv.granularity=query_head",
        "method.snapkv.group_reduce=max",
    ): "group_reduce=max .* granularity=query_head",
    ("h2o", "method.h2o.decode=update", KIVI): "decode=update .* dense, unfolded storage",
    ("h2o", "method.h2o.decode=update", "method.h2o.scoring.score=mean"): "decode=update .* score=sum, not mean",
    (
        "h2o",
        "method.h2o.decode=update",
        "scoring@method.h2o.scoring=window_attention",
    ): "decode=update .* ColumnSums .* not WindowAttention",
    ("h2o", "method.h2o.decode=update", "method.h2o.group_reduce=max"): "decode=update .* group_reduce=mean, not max",
    ("h2o", "method.h2o.decode=update", "method.h2o.group_reduce=sum"): "decode=update .* group_reduce=mean, not sum",
    ("streaming_llm", "method.streaming_llm.decode=evict", KIVI): "decode=evict .* dense storage",
    ("streaming_llm", "method.streaming_llm.recent=32"): "sinks=4 and recent=32: set exactly one",
    ("streaming_llm", "method.streaming_llm.sinks=null"): "sinks=None and recent=None: set exactly one",
    ("snapkv", "storage@method.snapkv.storage=minicache"): "MiniCache needs the same tokens .* Eviction keeps",
    ("random_layers", "storage@method.random_layers.storage=minicache"): "MiniCache needs .* RandomLayers keeps",
    ("simlayerkv", "storage@method.simlayerkv.storage=minicache"): "MiniCache needs .* SimLayerKV keeps",
    ("squeeze", "storage@method.squeeze.policy.storage=minicache"): "MiniCache needs .* SqueezeAttention keeps",
    (
        "minicache",
        "storage@method.minicache.storage.storage=minicache",
    ): "MiniCache cannot put merged layers into MiniCache",
    (
        "squeeze_snapkv",
        "allocation@method.squeeze_snapkv.policy.allocation=pyramid",
    ): "policy=Eviction divides the budget between layers itself: SqueezeAttention",
    ("simlayerkv_snapkv", "method.simlayerkv_snapkv.variant=decode"): "variant=decode .* eviction in others=",
    ("simlayerkv_snapkv", "method.simlayerkv_snapkv.delta=null"): "delta=null .* eviction in others=",
}


@pytest.mark.parametrize("arguments", REFUSED, ids=" ".join)
def test_a_combination_without_meaning_is_refused_in_a_line_that_names_both(arguments):
    name, *overrides = arguments
    with pytest.raises(UserError, match=REFUSED[arguments]) as error:
        method(name, *(override.format(name) for override in overrides))
    assert "\n" not in str(error.value) and repr(name) in str(error.value)


NOT_DIVISIBLE = [
    PyramidInfer(),
    PyramidInfer(decay=0.5),
    SimLayerKV(delta=None),
    SimLayerKV(others=Eviction()),
    RandomLayers(),
    PoolingMerge(),
    SqueezeAttention(),
    Eviction(allocation=Pyramid()),
    FullKV(),
]


@pytest.mark.parametrize("policy", NOT_DIVISIBLE, ids=lambda policy: type(policy).__name__)
def test_squeeze_refuses_policies_that_give_layers_what_they_think_fit(policy):
    name = type(policy).__name__
    with pytest.raises(UserError, match=f"policy={name} (divides the budget between layers itself|takes no budget)"):
        SqueezeAttention(policy=policy)


@pytest.mark.parametrize("policy", [PoolingMerge(beta=1), H2O(decode="update"), StreamingLLM(decode="evict")])
def test_squeeze_gives_an_even_policy_the_budgets_it_made(policy):
    assert policy.divisible
    state = random_state(5, n=60)
    method = SqueezeAttention(policy=policy)
    budgets = method.budgets([layer.hidden_similarity for layer in state.layers], 24, 60)
    assert max(budgets) > min(budgets) + 10
    kept = [cache.kept.retained // (2 * 2) for cache in method.compress(state, 24)]
    assert kept == budgets


@pytest.mark.parametrize("others", [StreamingLLM(), PyramidInfer(), RandomLayers(), SqueezeAttention(), SimLayerKV()])
def test_simlayerkv_takes_fullkv_or_an_eviction_for_its_other_layers(others):
    with pytest.raises(UserError, match=f"others={type(others).__name__} must be FullKV or an Eviction"):
        SimLayerKV(others=others)


def test_simlayerkv_refuses_layers_merged_in_pairs_wherever_they_are_asked_for():
    with pytest.raises(UserError, match=r"MiniCache .* SimLayerKV"):
        SimLayerKV(others=FullKV(MiniCache()))


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("minicache", ()),
        ("minicache_kivi4", ()),
        ("streaming_llm", ("storage@method.streaming_llm.storage=minicache",)),
        ("squeeze", ()),
        ("simlayerkv", ("method.simlayerkv.delta=null",)),
    ],
)
def test_streaming_refuses_what_compresses_layers_together(name, overrides):
    settings = build_settings(method_configs(name, overrides=overrides), 0.5, None)
    with pytest.raises(UserError, match=f"memory=stream cannot run '{name}', whose layers are compressed together"):
        check_memory("stream", settings)


def test_h2o_that_updates_keeps_each_layer_of_a_pyramid_at_its_own_size():
    method = H2O(allocation=Pyramid(4), scoring=ColumnSums(4), decode="update")
    state = random_state(4, n=60)
    caches = method.compress(state, 20)
    sizes = method.allocation.tokens(20, 60, 4, 4)
    assert len(set(sizes)) > 2 and [cache.kept.nominal for cache in caches] == sizes
    for _ in range(5):
        for cache, size in zip(caches, sizes, strict=True):
            cache.update(torch.randn(1, 2, 1, 8), torch.randn(1, 2, 1, 8))
            cache.attend(torch.randn(1, 6, 1, 8), 8**-0.5)
            assert cache.k.length == size + 1  # and the slot of the token to come
