"""The least bytes that each method's kept tokens can take: never above what its caches hold, and no idle bound."""

from dataclasses import replace

import pytest
import torch
from omegaconf import OmegaConf

from kvbench.configuration.conf import CONF, choices
from kvbench.errors import UserError
from kvbench.evaluation.settings import Setting, build_settings
from kvbench.methods import Dense, Eviction, FullKV, Kivi, SimLayerKV, SqueezeAttention, Storage
from kvbench.prefill import PrefillState
from kvbench.runner.verify.check_bytes import least_stored
from tests.support.every_method import HEAD_DIM, LAYERS, PRUNED, pass_of, setting, state
from tests.support.representatives import REPRESENTATIVES

SHAPE = {"num_attention_heads": 6, "num_key_value_heads": 2, "head_dim": HEAD_DIM}


def claimed(one: Setting, made: PrefillState, element_bytes: int) -> tuple[float, float]:
    """The share of FullKV's bytes that the caches hold, and the least that their record could claim."""
    caches = one.method.compress(made, one.budget_at(made.n, LAYERS))
    kept = [cache.kept for cache in caches]
    record = {
        "kept_per_layer": [round(layer.r1 * made.n, 3) for layer in kept],
        "kept_per_head": [layer.per_head and list(layer.per_head) for layer in kept],
        "prompt_tokens": made.n,
        "ratio_over": kept[0].ratio_over,
    }
    for shape in (None, SHAPE):
        least = least_stored(record, one.method, element_bytes, shape)
        stored = sum(cache.nbytes for cache in caches) / made.nbytes
        assert stored >= least * (1 - 1e-9) - 1e-3 / made.n
    return stored, least


@pytest.mark.parametrize("name", [name for name in REPRESENTATIVES if name not in PRUNED])
def test_no_cache_is_below_it(name):
    for n, dtype in ((17, torch.bfloat16), (120, torch.float32), (300, torch.bfloat16)):
        for shipped in (False, True):
            try:
                one = setting(name, 0.3, shipped=shipped)
                claimed(one, state(n, dtype), dtype.itemsize)
            except UserError:
                assert shipped, "published parameters may not suit a small model"


@pytest.mark.parametrize("name", PRUNED)
def test_no_cache_of_a_pruned_pass_is_below_it(name):
    one = setting(name, 0.3)
    source, _ = pass_of(one, 120)
    claimed(one, source.state, 4)


def stored_in(name: str) -> Setting:
    """FullKV in a storage of conf/storage."""
    storage = OmegaConf.to_container(OmegaConf.load(CONF / "storage" / f"{name}.yaml"))
    storage.pop("defaults", None)
    (one,) = build_settings({"full": {"_target_": "kvbench.methods.FullKV", "storage": storage}}, None, None)
    return one


def test_the_layers_that_a_method_leaves_to_another_may_have_the_other_ones_storage():
    for others in (FullKV(storage=Kivi()), Eviction(storage=Kivi())):
        method = SimLayerKV(delta=0.123, window=24, others=others)
        claimed(Setting("simlayerkv", method, "{}", ratio=0.5), state(300, torch.float32), 4)


def test_query_heads_of_an_inner_eviction_may_share_what_they_keep():
    inner = Eviction(granularity="query_head", storage=Dense("union"))
    for method in (SqueezeAttention(policy=inner), SimLayerKV(delta=0.9, window=24, others=inner)):
        claimed(Setting("outer", method, "{}", ratio=0.3), state(300, torch.float32), 4)


def of_four(made: PrefillState) -> PrefillState:
    """The same state with only four different tokens."""
    rows = torch.arange(made.n) % 4
    layers = [replace(layer, keys=layer.keys[:, rows], values=layer.values[:, rows]) for layer in made.layers]
    return PrefillState(layers, made.logits)


@pytest.mark.parametrize("name", choices("storage"))
def test_a_quarter_of_the_bytes_is_below_it_wherever_bytes_do_not_depend_on_the_numbers(name):
    one = stored_in(name)
    cases = [(state(n, dtype), dtype.itemsize) for n in (17, 120, 300) for dtype in (torch.bfloat16, torch.float32)]
    found = [claimed(one, made, element_bytes) for made, element_bytes in cases]
    assert all(least > 0 for _, least in found)
    if [claimed(one, of_four(made), element_bytes)[0] for made, element_bytes in cases] == [own for own, _ in found]:
        assert all(stored / 4 < least * (1 - 1e-9) - 1e-3 for stored, least in found)


def test_a_storage_without_it_cannot_be_made():
    class Forgetful(Storage):
        def store(self, layer, selection):
            return Dense().store(layer, selection)

    with pytest.raises(TypeError, match="least_share"):
        Forgetful()
