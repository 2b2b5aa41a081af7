"""Random layers trimmed to sinks and recents: which ones, how many, and what they hold."""

import hypothesis.strategies as st
import pytest
import torch
from hydra import compose, initialize_config_dir
from hypothesis import given
from omegaconf import OmegaConf

from kvbench.errors import UserError
from kvbench.evaluation.decode import generate
from kvbench.evaluation.settings import build_settings
from kvbench.methods import FullKV, OnlyLazyLayers, RandomLayers, SimLayerKV, StreamingLLM
from kvbench.methods.simlayerkv.method import layers_to_trim
from kvbench.prefill import Needs, prefill
from tests.support.paths import ROOT
from tests.support.tiny import LAYOUTS, prompt, random_state, tiny_model

CONF = str(ROOT / "conf")


@given(n=st.integers(1, 300), short=st.integers(1, 60), budget=st.integers(1, 310), num_layers=st.integers(1, 40))
def test_the_fewest_layers_that_meet_the_budget_are_trimmed(n, short, budget, num_layers):
    def total(count):
        return count * min(short, n) + (num_layers - count) * n

    enough = [count for count in range(num_layers + 1) if total(count) <= budget * num_layers]
    expected = enough[0] if enough else 0 if short >= n else num_layers
    assert layers_to_trim(n, short, budget, num_layers) == expected


@pytest.mark.parametrize("num_layers, middle", [(32, 16), (30, 15), (3, 1), (2, 1)])
def test_low_and_high_halves_part_the_layers(num_layers, middle):
    low, high, every = (
        RandomLayers(start, stop, sinks=1, window=1).dropped(100, num_layers, 2)
        for start, stop in ((0, 0.5), (0.5, 1), (0, 1))
    )
    assert sorted(low) == list(range(middle))
    assert sorted(high) == list(range(middle, num_layers))
    assert sorted(every) == list(range(num_layers))


@given(
    num_layers=st.integers(1, 40),
    ends=st.lists(st.floats(0, 1), min_size=2, max_size=2, unique=True),
    count=st.integers(0, 20),
    seed=st.integers(0, 1000),
)
def test_a_given_number_is_drawn_without_repeats_and_nested(num_layers, ends, count, seed):
    start, stop = sorted(ends)
    room = int(stop * num_layers + 1e-9) - int(start * num_layers + 1e-9)
    count = min(count, room)
    dropped = RandomLayers(start, stop, count, seed).dropped(9000, num_layers, 0)
    assert len(set(dropped)) == len(dropped) == count
    assert all(start * num_layers - 1 < layer < stop * num_layers + 1e-9 for layer in dropped)
    if count < room:
        assert RandomLayers(start, stop, count + 1, seed).dropped(9000, num_layers, 0)[:count] == dropped


def test_seeds_draw_different_layers_and_one_seed_the_same():
    draws = [tuple(RandomLayers(layers=8, seed=seed).dropped(100, 32, 0)) for seed in range(20)]
    assert len(set(draws)) > 15
    assert draws == [tuple(RandomLayers(layers=8, seed=seed).dropped(7, 32, 9)) for seed in range(20)]
    assert set().union(*draws) == set(range(32))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
@pytest.mark.parametrize("layout", LAYOUTS)
def test_dropped_layers_hold_sinks_and_recents_and_the_others_everything(layout, dtype):
    heads, kv_heads = LAYOUTS[layout]
    state = random_state(6, heads=heads, kv_heads=kv_heads, n=30, dtype=dtype)
    method = RandomLayers(0.5, 1, layers=2, sinks=2, window=5)
    dropped = method.dropped(30, 6, 0)
    caches = method.compress(state, 0)
    full, cut = FullKV().compress(state, 30), StreamingLLM(sinks=2).compress(state, 7)
    for index, cache in enumerate(caches):
        expected = cut[index] if index in dropped else full[index]
        assert torch.equal(cache.k.view, expected.k.view) and torch.equal(cache.v.view, expected.v.view)
        assert cache.nbytes == 2 * kv_heads * (7 if index in dropped else 30) * 8 * dtype.itemsize
        assert cache.kept.r1 == (7 / 30 if index in dropped else 1)
    assert len(dropped) == 2 and min(dropped) >= 3


@pytest.mark.parametrize("ratio", [0.3, 0.5, 0.8, 1.0])
def test_at_one_ratio_as_many_layers_are_dropped_as_simlayerkv_trims(ratio):
    state = random_state(8, n=50)
    budget = int(ratio * 50)
    ours = RandomLayers(sinks=2, window=6).compress(state, budget)
    theirs = SimLayerKV(delta=None, sinks=2, window=6).compress(state, budget)
    count = sum(cache.kept.r1 < 1 for cache in ours)
    assert count == sum(cache.kept.r1 < 1 for cache in theirs)
    assert (count == 0) == (ratio == 1)


@pytest.mark.parametrize("n", [1, 7, 8])
def test_short_prompts_are_kept_whole(n):
    state = random_state(3, n=n)
    for method, budget in ((RandomLayers(layers=3, sinks=2, window=6), 0), (RandomLayers(sinks=2, window=6), 1)):
        assert [cache.kept.r1 for cache in method.compress(state, budget)] == [1, 1, 1]


def test_decoding_goes_on_and_differs_from_full_kv():
    model = tiny_model(num_layers=4).double()
    state = prefill(model, prompt(60), Needs())
    full = generate(model, FullKV().compress(state, 60), state.logits, 30, frozenset()).tokens
    caches = RandomLayers(layers=2, sinks=2, window=6).compress(state, 0)
    tokens = generate(model, caches, state.logits, 30, frozenset()).tokens
    assert tokens[0] == full[0] and tokens != full and len(tokens) == 30
    assert sorted(cache.k.length for cache in caches) == [37, 37, 89, 89]
    nothing = RandomLayers(layers=0).compress(state, 0)
    assert generate(model, nothing, state.logits, 30, frozenset()).tokens == full


@pytest.mark.parametrize(
    "arguments, word",
    [
        ({"start": 0.5, "stop": 0.5}, "start=0.5"),
        ({"start": -0.1}, "start=-0.1"),
        ({"stop": 2}, "stop=2"),
        ({"start": "low"}, "start='low'"),
        ({"layers": -1}, "layers=-1"),
        ({"seed": 0.5}, "seed=0.5"),
        ({"sinks": -1}, "sinks=-1"),
        ({"window": 0}, "window=0"),
    ],
)
def test_values_without_meaning_are_refused(arguments, word):
    with pytest.raises(UserError, match=word):
        RandomLayers(**arguments)


def test_more_layers_than_the_range_has_are_refused():
    with pytest.raises(UserError, match="layers=3 cannot be dropped from 2 layers"):
        RandomLayers(0, 0.5, layers=3).compress(random_state(4), 0)


def test_yaml_files_name_the_three_controls_of_figure_6():
    names = ["random_layers", "random_layers_low", "random_layers_high"]
    with initialize_config_dir(CONF, version_base="1.3"):
        config = compose("config", overrides=[f"method=[{','.join(names)}]"])
    settings = build_settings(OmegaConf.to_container(config, resolve=True)["method"], 0.5, None)
    ranges = [(setting.method.start, setting.method.stop) for setting in settings]
    assert ranges == [(0, 1), (0, 0.5), (0.5, 1)]


@given(scores=st.lists(st.floats(0, 1), min_size=1, max_size=40), delta=st.floats(0, 1))
def test_a_threshold_parts_the_layers_between_simlayerkv_and_its_opposite(scores, delta):
    lazy, other = (method(delta=delta).trims(scores) for method in (SimLayerKV, OnlyLazyLayers))
    assert lazy == [score > delta for score in scores]
    assert other == [not one for one in lazy]


@given(scores=st.lists(st.floats(0, 1), min_size=1, max_size=40), budget=st.integers(1, 400))
def test_at_one_budget_the_opposite_trims_as_many_layers_and_the_least_lazy_ones(scores, budget):
    lazy, other = (
        method(delta=None, sinks=1, window=9).trims(scores, 400, budget) for method in (SimLayerKV, OnlyLazyLayers)
    )
    assert sum(lazy) == sum(other)
    trimmed = [score for score, trim in zip(scores, other, strict=True) if trim]
    kept = [score for score, trim in zip(scores, other, strict=True) if not trim]
    assert max(trimmed, default=0) <= min(kept, default=1)


@pytest.mark.parametrize("variant", ["prefill", "decode"])
def test_what_simlayerkv_keeps_whole_its_opposite_trims(variant):
    model, ids = tiny_model(num_layers=6), prompt(80)
    state = prefill(model, ids, Needs(window=32))
    trimmed = {}
    for method in (SimLayerKV, OnlyLazyLayers):
        caches = method(variant, delta=0.08, sinks=2, window=16).compress(state, 80)
        generate(model, caches, state.logits, 3, frozenset())
        trimmed[method] = [cache.kept.r1 < 1 for cache in caches]
    assert len(set(trimmed[SimLayerKV])) == 2, "a threshold that parts no layers shows nothing"
    assert trimmed[OnlyLazyLayers] == [not one for one in trimmed[SimLayerKV]]
