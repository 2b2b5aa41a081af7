"""Models with latent attention: what is stored, and attention over it."""

import gc
from contextlib import nullcontext

import pytest
import torch
from torch import nn

from kvbench import compress
from kvbench.cache.batch import BatchCache
from kvbench.cache.latents import LatentCache
from kvbench.errors import UserError
from kvbench.evaluation.decode import generate
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.methods import FullKV, StreamingLLM
from kvbench.methods.fp8_ds_mla import Fp8Latents
from kvbench.models.attending_layer import AttendingLayer
from kvbench.models.cache_argument import as_argument
from kvbench.models.latents import Latents, attend_expanded, hand_over, projections_of, take_handed_over
from kvbench.models.positions import positions_after
from kvbench.models.probe import manifest_fields, ropes_of
from kvbench.prefill import FullPrefill, LayerState, Needs, prefill
from kvbench.prefill.chunked import ChunkedPrefill
from tests.support.every_method import setting
from tests.support.latents import FAMILIES, HEADS, LAYERS, PLAIN, RANK, ROTATED, VALUE, latent_model, made
from tests.support.tiny import prompt

N, STEPS = 60, 16


def own_tokens(family: str) -> list[int]:
    model = latent_model(family, "eager")
    out = model.generate(prompt(N)[None], max_new_tokens=STEPS, do_sample=False)
    return out[0, N:].tolist()


@pytest.mark.parametrize("family", FAMILIES)
def test_full_kv_gives_the_tokens_of_generate_and_stores_latents(family):
    model = latent_model(family)
    done = SharedPass(model, prompt(N), FullPrefill(), Needs()).compress(FullKV(), N)
    stored = N * (RANK + ROTATED) * 4
    assert [cache.filled_bytes for cache in done.caches if isinstance(cache, LatentCache)] == [stored] * LAYERS
    ratio = done.ratio(done.caches)
    assert (ratio.r, ratio.r_bytes, ratio.full_bytes) == (1.0, 1.0, LAYERS * stored)
    assert generate(model, done.caches, done.logits, STEPS, frozenset()).tokens == own_tokens(family)
    assert manifest_fields(model)["reads_alike"] < 1e-5


@pytest.mark.parametrize("family", FAMILIES)
def test_compress_gives_the_tokens_of_generate(family):
    model = latent_model(family, "sdpa")
    with compress(model, "full") as compression:
        out = model.generate(prompt(N)[None], max_new_tokens=STEPS, do_sample=False)
    assert out[0, N:].tolist() == own_tokens(family)
    assert compression.caches[-1].ratio["r_bytes"] == 1


@pytest.mark.parametrize("turn", [False, True], ids=["prompt", "turn"])
def test_weights_that_change_between_prompts_or_turns_are_those_that_are_read(turn):
    """Projections were kept from the first answer on, when another adapter of LoRA had become active."""
    model, own = (made("deepseek_v3", implementation) for implementation in ("sdpa", "eager"))
    ids, first = prompt(N + 9)[None], N if turn else N + 9
    after = {}
    for name, read in {"kvbench": model, "own": own}.items():
        with compress(read, "full") if read is model else nullcontext():
            seen = read(input_ids=ids[:, :first], use_cache=True).past_key_values
            read(input_ids=ids[:, :1], **as_argument(read, seen))  # a single token, which absorbs
            with torch.no_grad():
                for layer in read.model.layers:
                    layer.self_attn.kv_b_proj.weight.mul_(-1.5)
            if turn:
                read(input_ids=ids[:, first:], **as_argument(read, seen))
            else:
                seen = read(input_ids=ids, use_cache=True).past_key_values
            after[name] = read(input_ids=ids[:, :1], **as_argument(read, seen)).logits
    torch.testing.assert_close(after["kvbench"], after["own"], atol=1e-3, rtol=1e-3)


@pytest.mark.parametrize("family", FAMILIES)
def test_in_bfloat16_logits_are_as_close_to_float32_as_the_models_own(family):
    ids, half = prompt(N + 4), made(family).bfloat16()
    exact = latent_model(family, "eager")(ids[None]).logits[0, -1]
    own = made(family, "eager").bfloat16()(ids[None]).logits[0, -1].float()
    done = SharedPass(half, ids[:N], FullPrefill(), Needs()).compress(FullKV(), N)
    for token in ids[N:]:
        logits = step(half, done.caches, token[None, None])
    errors = [float((x - exact).norm()) for x in (logits.float(), own)]
    assert errors[0] < 2 * errors[1]


@torch.inference_mode()
def step(model, caches, ids) -> torch.Tensor:
    """The logits [vocab_size] after more tokens [1, t]."""
    cache = BatchCache([caches])
    positions = positions_after(cache.get_seq_length(), ids)
    return model(input_ids=ids, **as_argument(model, cache), position_ids=positions).logits[0, -1]


def test_a_block_of_tokens_is_read_as_one_by_one():
    model, more = latent_model(), prompt(7, seed=3)[None]
    whole = SharedPass(model, prompt(N), FullPrefill(), Needs())
    at_once = step(model, whole.compress(FullKV(), N).caches, more)
    caches = whole.compress(FullKV(), N).caches
    for token in more.split(1, dim=1):
        last = step(model, caches, token)
    torch.testing.assert_close(at_once, last, atol=1e-4, rtol=1e-4)
    own = latent_model(implementation="eager")(torch.cat([prompt(N)[None], more], dim=1)).logits[0, -1]
    torch.testing.assert_close(last, own, atol=1e-4, rtol=1e-4)


def test_a_prompt_in_chunks_leaves_the_same_state():
    model, needs = latent_model(), Needs(window=4, column_sums=True)
    whole, parts = (plan.run(model, prompt(N), needs) for plan in (FullPrefill(), ChunkedPrefill(16)))
    for layer, other in zip(whole.layers, parts.layers, strict=True):
        for name in ("keys", "values", "queries", "column_sums"):
            torch.testing.assert_close(getattr(layer, name), getattr(other, name), atol=1e-4, rtol=1e-4)
        assert layer.latents is not None and other.latents is not None
        for one, two in zip(layer.latents, other.latents, strict=True):
            torch.testing.assert_close(one, two, atol=1e-4, rtol=1e-4)


@torch.inference_mode()
def test_scores_are_those_of_heads_and_storages_get_latents():
    layer = prefill(latent_model(), prompt(N), Needs()).layers[1]
    assert layer.keys.shape == (HEADS, N, PLAIN + ROTATED) and layer.values.shape == (HEADS, N, VALUE)
    stored = layer.stored
    assert stored.keys.shape == (1, N, ROTATED) and stored.values.shape == (1, N, RANK)
    assert stored.nbytes == layer.nbytes == N * (RANK + ROTATED) * 4
    assert stored.stored is stored
    attention = latent_model().model.layers[1].self_attn
    keys, values = attention.expand_kv(stored.values[None], stored.keys[None])
    torch.testing.assert_close(keys[0], layer.keys)
    torch.testing.assert_close(values[0], layer.values)


@torch.inference_mode()
@pytest.mark.parametrize("name", ["snapkv", "h2o", "knorm", "expected_attention", "streaming_llm", "kvzip_uniform"])
def test_what_stays_is_attended_to_as_expanded_keys_and_values(name):
    model, one = latent_model(), setting(name)
    state = SharedPass(model, prompt(N), FullPrefill(), one.method.needs)
    budget = one.budget_at(N, LAYERS)
    layers, done = state.state.layers, state.compress(one.method, budget)
    for at, (layer, cache) in enumerate(zip(layers, done.caches, strict=True)):
        module = model.model.layers[at].self_attn
        assert isinstance(cache, LatentCache)
        rows = cache.store.as_dense()
        assert rows is not None and rows.keys.shape[2] == budget
        keys, values = module.expand_kv(rows.values, rows.keys)
        places = [(layer.stored.keys[0] == row).all(dim=1).nonzero().item() for row in rows.keys[0, 0]]
        torch.testing.assert_close(keys[0], layer.keys[:, places], atol=1e-5, rtol=1e-4)
        query = torch.randn(1, HEADS, 3, PLAIN + ROTATED, generator=torch.Generator().manual_seed(at))
        weights = query @ keys.mT * module.scaling
        mask = torch.ones(3, budget, dtype=torch.bool).tril(budget - 3)
        expected = weights.masked_fill(~mask, float("-inf")).softmax(dim=-1) @ values
        projections = projections_of(module, Latents(rows.values, rows.keys))
        out = projections.expanded(cache.attend(projections.absorbed(query), module.scaling))
        torch.testing.assert_close(out, expected, atol=1e-4, rtol=1e-4)


def test_a_token_of_deepseek_v3_takes_1152_bytes_and_656_in_vllms_format():
    sizes = {"kv_lora_rank": 512, "qk_rope_head_dim": 64, "num_hidden_layers": 1}
    model = made("deepseek_v3", **sizes).bfloat16()
    state = SharedPass(model, prompt(N), FullPrefill(), Needs())
    full, coded = (state.compress(FullKV(storage), N) for storage in (FullKV().storage, Fp8Latents()))
    assert full.full_bytes == full.caches[0].filled_bytes == N * 576 * 2
    assert coded.caches[0].filled_bytes == N * (512 + 4 * 4 + 64 * 2) == N * 656
    assert coded.ratio(coded.caches).r == coded.ratio(coded.caches).r_bytes == 656 / 1152


def test_a_budget_of_the_whole_prompt_is_full_kv_and_fewer_tokens_stay_otherwise():
    model = latent_model()
    state = SharedPass(model, prompt(N), FullPrefill(), Needs())
    tokens = {
        budget: generate(model, done.caches, done.logits, STEPS, frozenset()).tokens
        for budget in (N, N // 2)
        for done in [state.compress(StreamingLLM(), budget)]
    }
    assert tokens[N] == own_tokens("deepseek_v3") != tokens[N // 2]


class Absorbing(AttendingLayer):
    latent = absorbs = True

    def append(self, keys, values):
        """It keeps nothing."""

    def attend(self, query, scaling):
        return query


def test_a_release_that_stores_expanded_keys_and_values_is_refused():
    """transformers 5.2 calls `update` with the keys and values of heads."""
    x = torch.ones(1, 1, 1, 4)
    with pytest.raises(UserError, match="stores keys and values of every head"):
        attend_expanded(nn.Module(), x, Absorbing(), Latents(x, x), x, x, 1.0)


def test_latents_of_a_pass_that_an_error_ended_are_handed_to_nobody():
    layer, x = Absorbing(), torch.ones(1, 1, 1, 4)
    hand_over(layer, Latents(x, x))
    assert take_handed_over().layer is layer
    assert take_handed_over() is None

    def fails():
        rows = [torch.ones(1, 1, 1, 4) for _ in range(2)]
        hand_over(layer, Latents(*rows))
        raise RuntimeError

    with pytest.raises(RuntimeError):
        fails()
    gc.collect()
    assert take_handed_over() is None


def test_a_model_with_latents_and_no_cache_is_refused():
    with pytest.raises(UserError, match="this pass has no cache of one"):
        latent_model()(prompt(5)[None], use_cache=False)


@pytest.mark.parametrize("family", ["deepseek_v3", "longcat_flash"])
def test_the_last_channels_of_heads_are_rotated(family):
    """LongCat's file has the rotation of interleaved pairs alone, which leaves keys in halves as the others do."""
    layer: LayerState = prefill(latent_model(family), prompt(N), Needs()).layers[0]
    rope = ropes_of(latent_model(family))[0]
    assert rope is not None and rope.last and layer.rope == rope
    back = rope.rotate(layer.keys, -torch.arange(N))
    torch.testing.assert_close(back[..., :PLAIN], layer.keys[..., :PLAIN])
    assert not torch.allclose(back[0, :, PLAIN:], layer.keys[0, :, PLAIN:])
