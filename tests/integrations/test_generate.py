"""Methods in transformers' `generate`: the harness's tokens and kept tokens, and nothing left behind in the model."""

from copy import deepcopy

import pytest
import torch

import kvbench
from kvbench.errors import UserError
from kvbench.evaluation.decode import generate
from kvbench.evaluation.prefill_passes import SharedPass, num_layers
from kvbench.integrations.generate import CompressedCache, setting_of
from kvbench.methods import Eviction
from kvbench.models.attention_interface import ATTENTION
from kvbench.models.cache_argument import as_argument
from kvbench.prefill import FullPrefill
from tests.support.answers import agree
from tests.support.every_method import HEAD_DIM, LAYERS, setting
from tests.support.hybrids import hybrid_model
from tests.support.representatives import by_kind
from tests.support.sliding import sliding_model
from tests.support.tiny import prompt, tiny_model

N, STEPS = 120, 8
LONG = {"max_new_tokens": STEPS, "do_sample": False, "pad_token_id": 0}


def harness(model, ids, one):
    """Answer and caches of a setting, as the harness makes them."""
    layers = num_layers(model, len(ids))
    budget = one.budget_at(len(ids), layers)
    plan = one.method.plan(len(ids), layers, budget)
    compressed = SharedPass(model, ids, plan, one.method.needs).compress(one.method, budget)
    return generate(model, compressed.caches, compressed.logits, STEPS, frozenset()), compressed


def new_tokens(model, ids, **options) -> list[int]:
    mask = torch.ones_like(ids[None])
    return model.generate(ids[None], attention_mask=mask, **LONG | options)[0, len(ids) :].tolist()


@pytest.fixture(scope="module")
def model():
    """A tiny model as transformers loads it by default, in float64: rounding turns no token."""
    return tiny_model(layout="gqa", num_layers=LAYERS, head_dim=HEAD_DIM, implementation="sdpa").double()


@pytest.fixture(scope="module")
def ours():
    return tiny_model(layout="gqa", num_layers=LAYERS, head_dim=HEAD_DIM).double()


@pytest.fixture(scope="module")
def single():
    """`ours` in float32, as not every method stores float64."""
    return tiny_model(layout="gqa", num_layers=LAYERS, head_dim=HEAD_DIM)


@pytest.mark.heavy
@pytest.mark.parametrize("name", by_kind())
def test_every_method_generates_the_harness_tokens_or_is_refused_in_one_line(name, single):
    one, ids = setting(name, 0.3), prompt(N)
    cache = CompressedCache(single, one)
    plain = one.method.plan(N, LAYERS, one.budget_at(N, LAYERS)) == FullPrefill()
    if not plain or one.method.needs.reconstructions or one.method.needs.hidden_similarity:
        with pytest.raises(UserError, match=r"which generate cannot do: run it in the harness$"):
            new_tokens(single, ids, past_key_values=cache)
        return
    answer, compressed = harness(single, ids, one)
    assert agree(answer, new_tokens(single, ids, past_key_values=cache))
    assert [layer.kept for layer in cache.caches] == [layer.kept for layer in compressed.caches]
    assert cache.compressed.full_bytes == compressed.full_bytes
    assert cache.ratio["r_bytes"] == compressed.stored_bytes(compressed.caches) / compressed.full_bytes


@pytest.mark.parametrize("name", ["snapkv", "h2o", "kivi"])
@pytest.mark.parametrize("family", ["gemma3", "qwen2"])
def test_layers_with_a_sliding_window_are_left_as_they_are(family, name):
    model, one, ids = sliding_model(family).double(), setting(name, 0.3), prompt(40)
    answer, compressed = harness(model, ids, one)
    with kvbench.compress(model, one.method, **({"ratio": 0.3} if one.method.takes_budget else {})) as compression:
        assert new_tokens(model, ids) == answer.tokens
    cache = compression.cache
    assert [layer.kept for layer in cache.caches] == [layer.kept for layer in compressed.caches]
    assert cache.compressed.full_bytes == compressed.full_bytes
    assert cache.compressed.window_bytes == compressed.window_bytes


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16], ids=str)
def test_a_block_compresses_every_prompt_and_gives_the_model_its_attention_back(model, ours, dtype):
    model, ours = model.to(dtype), ours.to(dtype)
    one = setting_of("snapkv", ratio=0.3, overrides=["method.snapkv.scoring.window=8"])
    with kvbench.compress(model, "snapkv", ratio=0.3, overrides=["method.snapkv.scoring.window=8"]) as compression:
        found = [new_tokens(model, prompt(n)) for n in (N, 60)]
    expected = [harness(ours, prompt(n), one)[0] for n in (N, 60)]
    assert all(agree(answer, tokens) for answer, tokens in zip(expected, found, strict=True))
    assert [cache.ratio["r"] for cache in compression.caches] == [36 / 120, 18 / 60]
    assert model.config._attn_implementation == "sdpa" and not model._forward_pre_hooks
    model.double(), ours.double()


def test_an_error_in_the_block_gives_the_attention_back_too(model):
    with pytest.raises(ZeroDivisionError), kvbench.compress(model, "full"):
        raise ZeroDivisionError
    assert model.config._attn_implementation == "sdpa" and not model._forward_pre_hooks


def test_without_compression_generate_is_as_before(model):
    before = new_tokens(model, prompt(N))
    with kvbench.compress(model, "full") as compression:
        assert new_tokens(model, prompt(N)) == before
    assert compression.cache.ratio["r"] == 1
    assert new_tokens(model, prompt(N)) == before


def test_a_further_turn_goes_on_from_the_compressed_cache(ours):
    cache, ids = CompressedCache(ours, "full"), prompt(N)
    first = torch.tensor(new_tokens(ours, ids, past_key_values=cache))
    whole = torch.cat([ids, first, prompt(9, seed=1)])
    with kvbench.compress(ours, "full"):
        expected = new_tokens(ours, whole)
    assert new_tokens(ours, whole, past_key_values=cache) == expected


def test_two_branches_go_on_from_copies_of_one_compressed_prompt(model):
    """Also in the block, where a copy counted as the cache of another model."""
    ids, turns = prompt(N), [prompt(5, seed=1), prompt(7, seed=2)]
    with kvbench.compress(model, "snapkv", budget=40) as compression:
        model(input_ids=ids[None])
        branches = [deepcopy(compression.cache) for _ in turns]
        found = [
            new_tokens(model, torch.cat([ids, turn]), past_key_values=branch)
            for turn, branch in zip(turns, branches, strict=True)
        ]
        for turn, tokens in zip(turns, found, strict=True):
            model(input_ids=ids[None])
            assert new_tokens(model, torch.cat([ids, turn]), past_key_values=compression.cache) == tokens
    assert [branch.get_seq_length() for branch in branches] == [N + len(turn) + STEPS - 1 for turn in turns]


def test_a_copy_of_an_unread_cache_is_for_the_same_model(ours):
    cache = CompressedCache(ours, "snapkv", budget=40)
    copied = deepcopy(cache)
    assert copied.config is ours.config and copied._model is ours
    assert new_tokens(ours, prompt(N), past_key_values=copied) == new_tokens(ours, prompt(N), past_key_values=cache)


def test_a_cache_may_be_a_positional_argument(model):
    ids = prompt(N)[None]
    with kvbench.compress(model, "full") as compression:
        expected = model(input_ids=ids).logits
        assert torch.equal(model(ids, None, None, None).logits, expected)
        model(ids[:, :3], None, None, compression.cache)
        assert len(compression.caches) == 2 and compression.cache.get_seq_length() == N + 3


def test_a_method_of_ones_own_is_an_object(ours):
    mine = Eviction()
    cache = CompressedCache(ours, mine, budget=40)
    new_tokens(ours, prompt(N), past_key_values=cache)
    assert cache.ratio["r"] == 40 / N and cache.setting.label == "Eviction 40"


def test_sampling_reads_the_compressed_cache_too(model):
    torch.manual_seed(0)
    with kvbench.compress(model, "streaming_llm", budget=20) as compression:
        new_tokens(model, prompt(N), do_sample=True, temperature=2.0)
    assert compression.cache.ratio["r"] == 20 / N and compression.cache.get_seq_length() == N + STEPS - 1


MISTAKES = {
    "unknown method 'snapkw'. Did you mean 'snapkv'": {"method": "snapkw", "ratio": 0.3},
    "method 'snapkv' needs one of ratio= .* and budget=": {"method": "snapkv"},
    r"ratio 3 is outside \(0, 1\]": {"method": "snapkv", "ratio": 3},
    "overrides apply to a method's name": {"method": Eviction(), "ratio": 0.3, "overrides": ["method.x=1"]},
}


@pytest.mark.parametrize("message", MISTAKES)
def test_a_wrong_setting_is_one_line_before_the_model_runs(message, model):
    with pytest.raises(UserError, match=message), kvbench.compress(model, **MISTAKES[message]):
        pytest.fail("the block ran")


def test_what_such_a_cache_cannot_do_is_one_line(model, ours):
    with pytest.raises(UserError, match=r"the model's attention is 'sdpa': `with kvbench.compress"):
        CompressedCache(model, "full")
    with pytest.raises(UserError, match="has read no prompt yet"):
        CompressedCache(ours, "full").ratio  # noqa: B018
    two = torch.stack([prompt(20), prompt(20)])
    with pytest.raises(UserError, match="a batch of 2 sequences"), kvbench.compress(model, "full"):
        model.generate(two, attention_mask=torch.ones_like(two), **LONG)
    cache = CompressedCache(ours, "full")
    new_tokens(ours, prompt(20), past_key_values=cache)
    with pytest.raises(UserError, match="cannot remove tokens"):
        cache.crop(10)
    with pytest.raises(UserError, match="a new one"):
        cache.reset()
    for several in (cache.reorder_cache, cache.batch_repeat_interleave, cache.batch_select_indices):
        with pytest.raises(UserError, match=r"holds one sequence \(no beams, no batch\)"):
            several(torch.tensor([0]))


@pytest.mark.parametrize("name", ["snapkv", "quest", "spindle", "rkv"])
def test_several_tokens_after_the_prompt_are_read_as_one_after_the_other(ours, name):
    turn = prompt(5, seed=1)[None]
    block, single = (CompressedCache(ours, setting(name, 0.5)) for _ in range(2))
    for cache in (block, single):
        ours(input_ids=prompt(N)[None], **as_argument(ours, cache))
    together = ours(input_ids=turn, **as_argument(ours, block)).logits
    one_by_one = [ours(input_ids=token, **as_argument(ours, single)).logits for token in turn.split(1, dim=1)]
    torch.testing.assert_close(together, torch.cat(one_by_one, dim=1), atol=2e-3, rtol=1e-2)


def test_importing_kvbench_imports_no_torch_and_other_names_are_missing():
    assert {"compress", "CompressedCache"} <= {*kvbench.__all__}
    with pytest.raises(AttributeError, match="has no attribute 'decompress'"):
        kvbench.decompress  # noqa: B018


@pytest.mark.heavy
def test_the_embedded_model_gives_the_harness_tokens(embedded):
    name = "pyramidkv"
    text = "The special number is 48213. " * 3 + "The sky is blue. " * 30 + "What is the special number? It is"
    ids, model = torch.tensor(embedded.plain_tokens(text)), embedded.model
    answer, compressed = harness(model, ids, setting_of(name, ratio=0.3))
    with kvbench.compress(model, name, ratio=0.3) as compression:
        assert agree(answer, new_tokens(model, ids, eos_token_id=None))
    assert [layer.kept for layer in compression.cache.caches] == [layer.kept for layer in compressed.caches]
    assert model.config._attn_implementation == ATTENTION


@pytest.mark.parametrize("family", ["gemma2", "gpt_oss", "mistral"])
def test_fullkv_has_the_tokens_of_models_with_soft_caps_sinks_and_windows(family):
    ours, reference = sliding_model(family), sliding_model(family, "eager")
    for n in (10, 60):
        cache = CompressedCache(ours, setting_of("full"))
        assert new_tokens(ours, prompt(n), past_key_values=cache) == new_tokens(reference, prompt(n))
        assert cache.ratio["r_bytes"] == 1


@pytest.mark.parametrize(
    ("family", "name"),
    [
        *(("qwen3_next", name) for name in ("snapkv", "rkv")),
        *(("granitemoehybrid", name) for name in ("snapkv", "h2o", "simlayerkv_decode")),
        *(("gemma3n_text", name) for name in ("h2o", "kivi")),
    ],
)
def test_states_and_shared_layers_are_left_as_they_are(family, name):
    """Also where layers with a state come after the last one that attends (Granite)."""
    model, one, ids = hybrid_model(family), setting(name, 0.3), prompt(60)
    answer, compressed = harness(model, ids, one)
    cache = CompressedCache(model, one)
    assert agree(answer, new_tokens(model, ids, past_key_values=cache))
    assert [layer.kept for layer in cache.caches] == [layer.kept for layer in compressed.caches]
    for name in ("full_bytes", "window_bytes", "state_bytes", "fixed_bytes"):
        assert getattr(cache.compressed, name) == getattr(compressed, name)


def test_further_tokens_that_a_model_or_a_cache_cannot_read_at_once_are_refused():
    for family, name, told in (
        ("jamba", "snapkv", "states of a jamba model are lost"),
        ("gemma3n_text", "kivi", "one token at a time, and later layers of this model attend to the same keys"),
    ):
        model = hybrid_model(family)
        cache = CompressedCache(model, setting(name, 0.3))
        model(input_ids=prompt(40)[None], **as_argument(model, cache))
        with pytest.raises(UserError, match=told):
            model(input_ids=prompt(3)[None], **as_argument(model, cache))
