"""Every preset over a model with latent attention runs, or is refused in one line."""

from functools import cache

import pytest
import torch

from kvbench.cache.latents import LatentCache
from kvbench.errors import UserError
from kvbench.evaluation.decode import generate
from kvbench.evaluation.prefill_passes import SharedPass, StreamedPass
from kvbench.methods.facts import allowed, most_share, never_full, overspends
from kvbench.prefill import FullPrefill, PrefillPlan
from tests.support.config import NAMES
from tests.support.every_method import LAYERS, N, observed, setting
from tests.support.latents import PLAIN, ROTATED, latent_model, made
from tests.support.representatives import by_kind
from tests.support.tiny import prompt

STEPS = 4


@cache
def passes(plan: PrefillPlan) -> SharedPass:
    return SharedPass(latent_model(), prompt(N), plan, observed(plan == FullPrefill()))


def tokens_of(name: str, ratio: float) -> list[int]:
    one = setting(name, ratio)
    budget = one.budget_at(N, LAYERS)
    done = passes(one.method.plan(N, LAYERS, budget)).compress(one.method, budget)
    assert all(isinstance(cache, LatentCache) for cache in done.caches)
    held = done.ratio(done.caches)
    # formula and bytes count the same; beside it stand tables, and where layers are merged a direction of each token
    assert held.r_bytes == pytest.approx(held.r, abs=0.03)
    if not overspends(one.method):
        kept = sum(cache.kept.r1 for cache in done.caches) * N / LAYERS
        assert kept <= allowed(one.method, budget, N) + 1e-9
    assert held.r <= most_share(one.method, N) + 1e-9
    return generate(latent_model(), done.caches, done.logits, STEPS, frozenset()).tokens


@pytest.mark.parametrize("name", by_kind(NAMES, "score_threshold"))
def test_a_preset_runs_or_is_refused_in_one_line(name):
    try:
        tokens = tokens_of(name, 0.5)
    except UserError as error:
        assert "\n" not in str(error) and "latents" in str(error)
        return
    assert len(tokens) == STEPS
    if setting(name).method.takes_budget and not never_full(setting(name).method):
        assert tokens_of(name, 1.0) == tokens_of("full", 1.0)


@pytest.mark.parametrize("how", [SharedPass, StreamedPass])
def test_budgets_of_heads_are_refused_in_one_line_however_the_prompt_is_read(how):
    """A stream, which `generate` reads, spoke of a RaggedLayer."""
    method = setting("lava").method
    with pytest.raises(UserError, match="LAVaHeads makes budgets of heads, and this model stores latents"):
        how(latent_model(), prompt(N), FullPrefill(), *([method.needs] if how is SharedPass else [])).compress(
            method, 20
        )


@pytest.mark.parametrize("name", ["spindle", "spindlekv_paper", "snapkv_codebook"])
def test_codebooks_are_refused_where_values_are_as_wide_as_keys(name):
    """As GLM-4.7-Flash's: it was a traceback of torch in `spindle`."""
    one = setting(name)
    budget = one.budget_at(N, LAYERS)
    done = SharedPass(made("glm4_moe_lite", v_head_dim=ROTATED + PLAIN), prompt(N), FullPrefill(), one.method.needs)
    with pytest.raises(UserError, match=r"stores latents, .* a codebook codes those of heads"):
        done.compress(one.method, budget)


@pytest.mark.parametrize(
    "name",
    "snapkv pyramidkv h2o tova streaming_llm keydiff expected_attention kvzip_uniform cake simlayerkv squeeze_snapkv "
    "fp8_head fp8_ds_mla ggml_q8_0 mxfp8 nvfp4 kivi turboquant_4 kvquant_4 snapkv_kivi4".split(),
)
def test_these_run(name):
    assert len(tokens_of(name, 0.5)) == STEPS


@torch.inference_mode()
def test_all_heads_of_a_layer_keep_the_same_tokens():
    """Scores of all heads, reduced as those of a group are."""
    for name in ("snapkv", "pyramidkv_paper", "h2o"):
        one = setting(name)
        budget = one.budget_at(N, LAYERS)
        state = passes(FullPrefill()).state
        for index, layer in enumerate(state.layers):
            selection = one.method.select(layer, index, LAYERS, budget)
            assert selection.indices is not None and len(selection.indices) == 1
            kept = selection.kept(layer.stored)
            assert (kept.ratio_over, kept.total) == ("kv_heads", 2 * N)


@pytest.mark.parametrize("name", ["full", "snapkv", "cake", "kivi", "fp8_ds_mla"])
def test_layers_that_are_compressed_as_they_arrive_have_the_same_caches(name):
    one = setting(name)
    budget = one.budget_at(N, LAYERS)
    plan = one.method.plan(N, LAYERS, budget)
    whole = passes(plan).compress(one.method, budget)
    streamed = StreamedPass(latent_model(), prompt(N), plan).compress(one.method, budget)
    for one_cache, other in zip(whole.caches, streamed.caches, strict=True):
        assert one_cache.kept == other.kept
        for x, y in zip(one_cache.tensors(), other.tensors(), strict=True):
            torch.testing.assert_close(x, y)
    assert streamed.full_bytes == whole.full_bytes and streamed.peak_bytes < whole.peak_bytes


def test_latents_count_in_the_peak_beside_what_they_were_expanded_to():
    done = passes(FullPrefill()).compress(setting("full").method, N)
    expanded = sum(x.nbytes for layer in passes(FullPrefill()).state.layers for x in (layer.keys, layer.values))
    assert done.peak_bytes >= expanded + done.full_bytes
