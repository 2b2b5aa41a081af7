"""Every file of conf/method compresses the full-attention layers of a model with sliding windows, and no others."""

from functools import cache

import pytest
import torch
from transformers import Gemma3TextConfig

from kvbench.cache.reserve_ratio import ReserveRatio
from kvbench.cache.sliding_window import WindowLayer
from kvbench.errors import UserError
from kvbench.evaluation.cache_checks import check_bytes
from kvbench.evaluation.decode import generate
from kvbench.evaluation.prefill_passes import SharedPass, num_layers
from kvbench.models.layer_kinds import compressed_layers, kinds_of
from kvbench.prefill import FullPrefill, Needs, Reconstruction
from tests.support.every_method import LAYERS, PRUNED, check_kept, observed, setting
from tests.support.representatives import REPRESENTATIVES, by_kind
from tests.support.sliding import SHAPE, WINDOW, sliding_model
from tests.support.tiny import prompt

N, STEPS = 100, 4
FULL = [1, 3, 5, 7]  # as many as the methods' own tests have, where head scores are read from files
TOKEN = 2 * 2 * 32 * 4


@cache
def model():
    types = ["sliding_attention", "full_attention"] * LAYERS
    shape = SHAPE | {"num_hidden_layers": 2 * LAYERS, "num_attention_heads": 6, "layer_types": types, "hidden_size": 48}
    return sliding_model("gemma3", config=Gemma3TextConfig(**shape, query_pre_attn_scalar=32))


@cache
def shared_pass() -> SharedPass:
    needs = observed() | Needs(reconstructions=frozenset([Reconstruction(chunk=40)]))
    return SharedPass(model(), prompt(N), FullPrefill(), needs)


@pytest.mark.parametrize("name", by_kind(name for name in REPRESENTATIVES if name not in PRUNED))
def test_a_preset_compresses_the_layers_of_full_attention(name):
    one = setting(name, 0.3)
    budget = one.budget_at(N, num_layers(model(), N))
    compressed = shared_pass().compress(one.method, budget)
    layers = [compressed.caches[place] for place in FULL]
    windows = [cache for cache in compressed.caches if cache not in layers]
    assert [cache.kept for cache in windows] == [None] * LAYERS and all(type(x) is WindowLayer for x in windows)
    assert sum(cache.nbytes for cache in windows) == compressed.window_bytes == LAYERS * (WINDOW - 1) * TOKEN
    assert compressed.full_bytes == LAYERS * N * TOKEN + compressed.window_bytes
    check_bytes(compressed.caches)
    before = [cache.k.view.clone() for cache in shared_pass().state.fixed_layers.values()]
    output = generate(model(), compressed.caches, compressed.logits, STEPS, frozenset())
    assert len(output.tokens) == STEPS and output.not_finite is None
    check_kept(one, layers, N, budget, LAYERS * N * TOKEN)
    assert [cache.get_seq_length() for cache in compressed.caches] == [N + STEPS - 1] * 2 * LAYERS
    assert all(torch.equal(a, b.k.view) for a, b in zip(before, shared_pass().state.fixed_layers.values(), strict=True))


@pytest.mark.parametrize("name", PRUNED)
def test_pruning_between_layers_is_refused(name):
    one = setting(name, 0.3)
    plan = one.method.plan(N, LAYERS, one.budget_at(N, LAYERS))
    with pytest.raises(UserError, match="has layers with a sliding window"):
        SharedPass(model(), prompt(N), plan, Needs())


SOME = "full snapkv h2o tova pyramidkv cake adakv expected_attention kvzip kivi turboquant_4 fp8_token spindle".split()


@pytest.mark.parametrize("name", SOME)
@pytest.mark.parametrize("family", ["gemma2", "gpt_oss"])
def test_methods_compress_models_with_soft_caps_and_sinks(family, name):
    one, model, n = setting(name, 0.3), made(family), 60
    budget = one.budget_at(n, num_layers(model, n))
    compressed = SharedPass(model, prompt(n), FullPrefill(), one.method.needs).compress(one.method, budget)
    check_bytes(compressed.caches)
    output = generate(model, compressed.caches, compressed.logits, STEPS, frozenset())
    assert len(output.tokens) == STEPS and output.not_finite is None
    kept = [cache.kept for cache in compressed.caches if cache.kept is not None]
    assert len(kept) == 3 and all(0 < each.retained <= each.total for each in kept)


@cache
def made(family: str):
    return sliding_model(family)


@pytest.mark.parametrize(("family", "module"), [("gemma3", "k_norm"), ("gemma2", "k_proj"), ("gpt_oss", "k_proj")])
def test_rotated_keys_are_those_of_the_layers_with_full_attention(family, module):
    """R(-p) of a key is what the model rotated by p with the base of full layers, not that of sliding ones."""
    model, seen = made(family), []
    layers = model.model.layers
    first = layers[min(compressed_layers(kinds_of(model.config)))].self_attn
    hook = getattr(first, module).register_forward_hook(lambda module, args, output: seen.append(output))
    layer = SharedPass(model, prompt(N), FullPrefill(), Needs()).state.layers[0]
    hook.remove()
    last = seen[-1][0]  # the pass over the prompt: the first ones find out which layers rotate
    before = last if last.dim() == 3 else last.unflatten(1, (2, -1)).transpose(0, 1)
    found = layer.rope.rotate(layer.keys, -torch.arange(layer.n))
    factor = getattr(model.model.rotary_emb, "attention_scaling", 1.0)  # YaRN's, which a rotation back leaves
    torch.testing.assert_close(found, factor * before, rtol=1e-4, atol=1e-4)


def test_both_shares_of_bytes_and_the_floor_are_those_of_the_worked_example():
    """Gemma-3-12B: 8 full layers of 8,192 tokens and 40 of 1,023, a fifth kept."""
    for n, whole, floor in ((8192, 0.5075, 0.3844), (65536, 0.2579, 0.0724)):
        fields = ReserveRatio(0.2, 1, 1, 0.2, 0.2, 0.2, full_bytes=8 * n * 8192).fields(40 * 1023 * 8192)
        assert fields["r_bytes"] == pytest.approx(whole, abs=1e-4) == fields["r"]
        assert fields["r_bytes_full"] == fields["r_full"] == 0.2
        assert fields["r_bytes_floor"] == pytest.approx(floor, abs=1e-4)
    plain = ReserveRatio(0.2, 1, 1, 0.2, 0.2, 0.3, full_bytes=100).fields()
    assert (plain["r"], plain["r_bytes"]) == (0.2, 0.3) and "r_full" not in plain and "full_bytes" not in plain
