"""Bytes held and read while decoding, to the byte: closed forms for caches that grow, slide, evict and quantise."""

import pytest
import torch

from kvbench.cache.decode_bytes import DecodeBytes
from kvbench.evaluation.decode import batched, decode, generate, read
from kvbench.methods import H2O, TOVA, ColumnSums, Eviction, FullKV, Kivi, StreamingLLM, WindowAttention
from kvbench.methods.storage.dense import Dense
from kvbench.prefill import Needs, prefill
from tests.support.paths import ROOT
from tests.support.tiny import prompt, tiny_model

LAYERS, HEADS, KV_HEADS, HEAD_DIM = 3, 6, 2, 8
N, T, B = 50, 30, 20
ELEMENT = 4
TOKEN = LAYERS * 2 * KV_HEADS * HEAD_DIM * ELEMENT  # FullKV's bytes per token
WINDOW = Eviction(scoring=WindowAttention(window=8))


@pytest.fixture(scope="module")
def state():
    return prefill(tiny_model(), prompt(N), Needs(window=8, column_sums=True))


def decoded(state, method, budget=B, passes=T):
    """Figures of one sequence after so many passes, and the sums that they are made of."""
    caches = method.compress(state, budget)
    output = generate(tiny_model(), caches, state.logits, passes + 1, frozenset())
    counts = output.decode_bytes
    assert counts.passes == counts.tokens == output.steps == passes
    return counts.figures(sum(cache.filled_bytes for cache in caches), 0, state.nbytes, N), counts


def test_fullkv_is_one_in_every_ratio(state):
    figures, _ = decoded(state, FullKV(), N)
    assert (figures.r_mean, figures.r_decode_peak, figures.r_end, figures.r_read) == (1, 1, 1, 1)
    assert figures.decode_bytes_mean == TOKEN * (N + (T + 1) / 2)
    assert figures.decode_byte_steps == TOKEN * sum(range(N + 1, N + T + 1))


@pytest.mark.parametrize("granularity, copies", [("kv_head", 1), ("query_head", 3)])
def test_a_prompt_compressed_once_grows_by_its_own_bytes_per_token(state, granularity, copies):
    method = Eviction(scoring=WindowAttention(window=8), granularity=granularity)
    figures, counts = decoded(state, method)
    assert counts.start == copies * TOKEN * B
    assert figures.decode_bytes_mean == copies * TOKEN * (B + (T + 1) / 2)
    assert figures.decode_bytes_end == figures.decode_bytes_peak == copies * TOKEN * (B + T)
    assert figures.r_mean == pytest.approx(copies * (B + (T + 1) / 2) / (N + (T + 1) / 2), abs=1e-12)
    assert figures.r_end == figures.r_decode_peak == copies * (B + T) / (N + T)
    assert figures.r_read == figures.r_mean


def test_union_storage_adds_a_bit_per_query_head_and_token(state):
    method = Eviction(scoring=WindowAttention(window=8), granularity="query_head", storage=Dense(layout="union"))
    figures, counts = decoded(state, method)
    assert counts.start == sum(cache.nbytes for cache in method.compress(state, B))
    assert figures.decode_bytes_end == counts.start + T * TOKEN


def test_a_sliding_window_holds_its_budget(state):
    figures, _ = decoded(state, StreamingLLM(decode="evict"))
    assert figures.decode_bytes_mean == figures.decode_bytes_peak == figures.decode_bytes_end == TOKEN * B


@pytest.mark.parametrize("budget, first", [(B, 1), (N + 10, 11)])
def test_eviction_at_each_pass_holds_one_token_more_than_its_budget(state, budget, first):
    """Positions take four bytes per layer and token; so does the slot of the dropped token (8 bytes) once there."""
    figures, _ = decoded(state, TOVA(decode="evict"), budget)
    row, free = TOKEN + LAYERS * 4, LAYERS * 8
    lengths = [min(budget + 1, min(budget, N) + t) for t in range(1, T + 1)]
    expected = sum(row * length + free * (t > first) for t, length in enumerate(lengths, start=1))
    assert figures.decode_byte_steps == expected
    assert figures.decode_bytes_peak == row * (budget + 1) + free


def test_h2o_holds_scores_and_positions_beside_its_tokens(state):
    figures, _ = decoded(state, H2O(scoring=ColumnSums(recent=8), decode="update"))
    row = TOKEN + LAYERS * KV_HEADS * 8
    assert figures.decode_bytes_peak == row * (B + 1) + LAYERS * KV_HEADS * 8


def test_a_quantised_cache_reads_its_codes_and_not_those_made_ahead():
    model = tiny_model(head_dim=32)
    made = prefill(model, prompt(70), Needs())
    caches = FullKV(storage=Kivi(bits=4, group=32, residual=32)).compress(made, 70)
    output = generate(model, caches, made.logits, 5, frozenset())
    key_groups, raw_keys, tokens = 64, 10, 74
    codes = 2 * 32 // 2 + 2 * (32 // 32) * 2 * ELEMENT  # of a token in both heads: 4 bits each, scale and minimum
    raw = 2 * 32 * ELEMENT
    keys = key_groups * codes + raw_keys * raw
    values, ahead = (tokens - 32) * codes + 32 * raw, 28 * codes
    counts = output.decode_bytes
    assert [cache.read_bytes for cache in caches] == [keys + values] * LAYERS
    assert [cache.filled_bytes for cache in caches] == [keys + values + ahead] * LAYERS
    assert counts.read < counts.held


def test_a_batch_counts_each_sequence_as_alone(state):
    methods = [FullKV(), WINDOW, StreamingLLM(decode="evict"), TOVA(decode="evict")]
    alone = [decoded(state, method)[1] for method in methods]
    cache = batched([method.compress(state, B) for method in methods])
    outputs = decode(tiny_model(), cache, state.logits.expand(4, -1), T + 1, frozenset())
    assert [output.decode_bytes for output in outputs] == alone


@pytest.mark.parametrize(
    ("n", "kept", "passes", "budget", "said"),
    [(200, 20, 4_000, 10**6, "the mean over the answer is 0.92 of"), (150, 150, 15_536, 1_536, "`r_mean` is 19.4 %")],
)
def test_the_guides_examples_of_long_answers_are_what_a_record_has(n, kept, passes, budget, said):
    """Tokens count as a byte each; beyond the budget a cache is cut to it after every 128 passes."""
    counts = DecodeBytes(start=kept)
    held = kept
    for step in range(1, passes + 1):
        held += 1
        counts.add(1, held, held)
        held = min(held, budget) if step % 128 == 0 else held
    share = counts.figures(held, 0, n, n).r_mean
    assert f"{share:.2f}" in said or f"{share:.1%}".replace("%", " %") in said
    assert said in " ".join((ROOT / "docs/reserve-ratio.md").read_text(encoding="utf-8").split())


def test_a_sequence_that_ended_counts_no_further(state):
    method = WINDOW
    first, second = (
        generate(tiny_model(), m.compress(state, B), state.logits, 30, frozenset()).tokens for m in (FullKV(), method)
    )
    stop = next(token for token in second if token not in first)
    caches = [m.compress(state, B) for m in (FullKV(), method, FullKV())]
    outputs = decode(tiny_model(), batched(caches), state.logits.expand(3, -1), 30, frozenset({stop}))
    steps = second.index(stop)
    assert outputs[1].decode_bytes.passes == steps
    assert sum(cache.filled_bytes for cache in caches[1]) == TOKEN * (B + steps)


@pytest.mark.parametrize("method", [FullKV(), StreamingLLM(decode="evict")], ids=["a block", "token by token"])
def test_a_hidden_question_counts_as_what_it_is_read_in(state, method):
    caches = method.compress(state, B)
    cache = batched([caches])
    read(tiny_model(), cache, prompt(7, seed=1))
    (counts,) = cache.sequences
    assert counts.tokens == 7 and counts.passes == (1 if isinstance(method, FullKV) else 7)
    figures = counts.figures(sum(c.filled_bytes for c in caches), 0, state.nbytes, N)
    assert (figures.r_mean, figures.r_end) == (1, 1) or figures.r_end == B / (N + 7)


def test_without_a_pass_the_prompts_cache_is_the_mean():
    figures = DecodeBytes(start=250).figures(end=250, prefill_peak=1000, full_bytes=1000, n=10)
    assert (figures.r_mean, figures.r_end, figures.r_read, figures.r_decode_peak) == (0.25, 0.25, 0.25, 0.25)
    assert figures.r_peak == 1 and figures.decode_bytes_mean == 250 and figures.decode_byte_steps == 0


@pytest.mark.parametrize("dtype", [torch.bfloat16], ids=str)
def test_bytes_are_those_of_the_caches_dtype(dtype):
    model = tiny_model().to(dtype)
    made = prefill(model, prompt(N), Needs(window=8))
    output = generate(model, WINDOW.compress(made, B), made.logits, T + 1, frozenset())
    assert output.decode_bytes.held == TOKEN // 2 * sum(range(B + 1, B + T + 1))
