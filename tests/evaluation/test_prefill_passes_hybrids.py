"""Models with states of fixed size, or with layers that share keys and values: FullKV is the model itself."""

from copy import deepcopy
from functools import cache

import pytest
import torch
from transformers import PreTrainedModel

from kvbench.cache.base import NoCache
from kvbench.cache.linear_state import LinearState
from kvbench.errors import UserError
from kvbench.evaluation.decode import batched, decode, generate, read, read_all
from kvbench.evaluation.prefill_passes import SharedPass, StreamedPass, num_layers
from kvbench.methods import Eviction, FullKV, WindowAttention
from kvbench.models.attention_interface import ATTENTION
from kvbench.prefill import FullPrefill, Needs
from kvbench.prefill.chunked import ChunkedPrefill
from tests.support.answers import agree
from tests.support.every_method import setting
from tests.support.hybrids import FAMILIES, SHARED, WINDOW, hybrid_model
from tests.support.tiny import prompt

NEW = WINDOW + 4  # so that no token of the prompt is left in a window
N = 60
TOKEN = 2 * 2 * 32 * 4  # bytes of one token in one layer with attention
SNAPKV = Eviction(scoring=WindowAttention(window=8))
STATES = {  # bytes of one layer's states
    "qwen3_next": (4 * 8 * 8 + (2 * 8 + 2 * 8 + 4 * 8) * 4) * 4,
    "lfm2": 48 * 3 * 4,
    "jamba": (96 * 8 + 96 * 4) * 4,
}


@cache
def made(family: str, implementation: str = ATTENTION) -> PreTrainedModel:
    return hybrid_model(family, implementation)


@cache
def expected(family: str, n: int) -> list[int]:
    return answer_of(family, prompt(n))


def answer_of(family: str, ids: torch.Tensor, count: int = NEW) -> list[int]:
    out = made(family, "eager").generate(ids[None], max_new_tokens=count, do_sample=False)
    return out[0, len(ids) :].tolist()


def plans(family: str, n: int) -> list:
    """Those that read a prompt of n tokens in different ways."""
    return [FullPrefill(), *(ChunkedPrefill(size) for size in (33,) if family != "jamba" and size < n)]


@pytest.mark.heavy
@pytest.mark.parametrize("n", [3, N])
@pytest.mark.parametrize("family", FAMILIES)
def test_fullkv_generates_the_models_tokens(family, n):
    model, ids, tokens = made(family), prompt(n), expected(family, n)
    assert len(set(tokens)) > 5
    sources = [
        one
        for plan in plans(family, n)
        for one in (SharedPass(model, ids, plan, Needs()), StreamedPass(model, ids, plan))
    ]
    every = [source.compress(FullKV(), n) for source in sources]
    for compressed in every:
        held = compressed.full_bytes
        assert held == sum(cache.nbytes for cache in compressed.caches) == compressed.stored_bytes(compressed.caches)
    if n != N:
        assert agree(generate(model, every[0].caches, every[0].logits, NEW, frozenset()), tokens)
        return
    cache = batched([compressed.caches for compressed in every])
    logits = torch.stack([compressed.logits for compressed in every])
    assert all(agree(answer, tokens) for answer in decode(model, cache, logits, NEW, frozenset()))


@pytest.mark.parametrize("family", FAMILIES)
def test_logits_in_bfloat16_are_as_near_to_those_of_float32_as_the_models(family):
    model, ids = deepcopy(made(family)).to(torch.bfloat16), prompt(N)
    with torch.inference_mode():
        exact = made(family, "eager")(ids[None]).logits[0, -1]
        theirs = deepcopy(made(family, "eager")).to(torch.bfloat16)(ids[None]).logits[0, -1]
    source = SharedPass(model, ids, FullPrefill(), Needs())
    assert torch.dist(source.state.logits.float(), exact) < 2 * torch.dist(theirs.float(), exact)
    compressed = source.compress(FullKV(), N)
    caches = [next(compressed.copies(2)), compressed.caches]
    outputs = decode(model, batched(caches), compressed.logits.expand(2, -1), 4, frozenset())
    assert all(output.not_finite is None and len(output.tokens) == 4 for output in outputs)


@pytest.mark.parametrize("n", [5, N])
@pytest.mark.parametrize("family", STATES)
def test_states_count_in_full_under_every_method_and_apart_from_what_is_compressed(family, n):
    model = made(family)
    source = SharedPass(model, prompt(n), FullPrefill(), SNAPKV.needs)
    for method, budget in ((FullKV(), n), (SNAPKV, min(n, 12))):
        compressed = source.compress(method, budget)
        states = [cache for cache in compressed.caches if isinstance(cache, LinearState)]
        assert [cache.kept for cache in states] == [None] * 4
        assert {cache.nbytes for cache in states} == {STATES[family]}
        assert compressed.window_bytes == compressed.state_bytes == compressed.fixed_bytes == 4 * STATES[family]
        assert compressed.full_bytes == 4 * n * TOKEN + 4 * STATES[family]


@pytest.mark.parametrize("family", SHARED)
def test_shared_keys_and_values_are_stored_once_and_counted_once(family):
    model = made(family)
    source = SharedPass(model, prompt(N), FullPrefill(), SNAPKV.needs)
    for method, budget, kept in ((FullKV(), N, N), (SNAPKV, 20, 20)):
        compressed = source.compress(method, budget)
        assert [isinstance(cache, NoCache) for cache in compressed.caches] == [False] * 8 + [True] * 4
        assert compressed.window_bytes == 4 * (WINDOW - 1) * TOKEN and not compressed.state_bytes
        assert compressed.full_bytes == 4 * N * TOKEN + compressed.window_bytes
        assert compressed.stored_bytes(compressed.caches) == 4 * kept * TOKEN + compressed.window_bytes
        counts = generate(model, compressed.caches, compressed.logits, 5, frozenset()).decode_bytes
        windows = 4 * WINDOW * TOKEN  # a pass holds its own token, too
        assert counts.fixed == 4 * windows
        assert counts.held == counts.read == sum(4 * (kept + step) * TOKEN + windows for step in (1, 2, 3, 4))


@pytest.mark.parametrize("family", FAMILIES)
def test_each_question_is_read_from_what_the_context_left(family):
    model, context = made(family), prompt(N)
    compressed = SharedPass(model, context, FullPrefill(), Needs()).compress(FullKV(), N)
    for (q, count), caches in zip(((WINDOW + 9, 4), (1, 3)), compressed.copies(2), strict=True):
        cache, question = batched([caches]), prompt(q, seed=q)
        (answer,) = decode(model, cache, read(model, cache, question), count, frozenset())
        assert agree(answer, answer_of(family, torch.cat([context, question]), count))


@pytest.mark.parametrize("name", ["longctx_h2o", "tova_paper", "quest", "kivi", "rkv", "spindle"])
@pytest.mark.parametrize("family", SHARED)
def test_a_question_is_read_token_by_token_where_others_attend_to_a_cache_that_takes_no_blocks(family, name):
    model, one, question = made(family), setting(name, 0.9), prompt(6, seed=1)
    source = SharedPass(model, prompt(N), FullPrefill(), one.method.needs)
    compressed = source.compress(one.method, one.budget_at(N, 4))
    cache, other = (batched([caches]) for caches in compressed.copies(2))
    assert cache.token_by_token
    logits = read_all(model, cache, question)[0]
    single = torch.stack([read(model, other, token[None])[0] for token in question])
    torch.testing.assert_close(logits, single)


@pytest.mark.parametrize("family", ["qwen3_next", "granitemoehybrid", "lfm3", "jamba", *SHARED])
def test_settings_decode_in_a_batch_as_alone(family):
    model, ids = made(family), prompt(N)
    source = SharedPass(model, ids, FullPrefill(), SNAPKV.needs)
    pairs = [(FullKV(), N), (SNAPKV, 15), (SNAPKV, 30)]
    alone = [generate(model, c.caches, c.logits, NEW, frozenset()) for c in (source.compress(*pair) for pair in pairs)]
    assert len({tuple(output.tokens) for output in alone}) == 3
    together = [source.compress(*pair) for pair in pairs]
    rows, logits = [compressed.caches for compressed in together], torch.stack([c.logits for c in together])
    states = [at for at, cache in enumerate(rows[0]) if isinstance(cache, LinearState)]
    # one sequence ends early: the states of the others go on without it
    others = {*alone[0].tokens, *alone[2].tokens}
    stop = frozenset([next(token for token in alone[1].tokens if token not in others)])
    outputs = decode(model, batched(rows), logits, NEW, stop)
    for output, other, caches, one in zip(outputs, alone, rows, together, strict=True):
        end = next((at for at, token in enumerate(other.tokens) if token in stop), NEW)
        assert agree(output, other.tokens[:end])
        assert end < NEW or output.decode_bytes == other.decode_bytes
        assert sum(caches[at].filled_bytes for at in states) == one.state_bytes
    assert agree(outputs[0], expected(family, N))


@pytest.mark.parametrize("family", ["qwen3_next", "jamba"])
def test_what_was_read_into_a_state_is_not_taken_back(family):
    compressed = SharedPass(made(family), prompt(5), FullPrefill(), Needs()).compress(FullKV(), 5)
    cache = batched([compressed.caches])
    cache.make_room(8)
    assert not cache.takes_back and all(layer.takes_back for layer in cache.attending)


def test_copies_of_a_setting_have_states_of_their_own():
    model = made("qwen3_next")
    compressed = SharedPass(model, prompt(N), FullPrefill(), Needs()).compress(FullKV(), N)
    first, second = compressed.copies(2)
    before = [tensor.clone() for cache in second for tensor in cache.tensors()]
    generate(model, first, compressed.logits, 3, frozenset())
    assert all(torch.equal(a, b) for a, b in zip(before, (t for c in second for t in c.tensors()), strict=True))


def test_a_model_whose_states_start_anew_with_every_pass_reads_no_chunks():
    with pytest.raises(UserError, match=r"prefill.chunk=7 .* the states of a jamba model are lost"):
        SharedPass(made("jamba"), prompt(N), ChunkedPrefill(7), Needs())


@pytest.mark.parametrize("family", FAMILIES)
def test_methods_see_four_layers(family):
    assert num_layers(made(family), N) == 4
