"""Eviction while the prompt is read: KeyDiff's processing of a prompt block after block, under other scorings, too."""

import pytest
import torch

from kvbench.errors import UserError
from kvbench.evaluation.decode import generate
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.evaluation.settings import Setting
from kvbench.methods import (
    RKV,
    AdaKV,
    ChunkedEviction,
    ColumnSums,
    DecodeCompression,
    Eviction,
    ExpectedAttention,
    FullKV,
    KeyDiff,
    Kivi,
    KNorm,
    LastQuery,
    Pyramid,
    WindowAttention,
)
from kvbench.prefill import FullPrefill
from kvbench.runner.request import check_memory
from tests.support.config import method
from tests.support.tiny import prompt, tiny_model

N, BUDGET, LAYERS = 90, 30, 4
POLICIES = {
    "keydiff": Eviction(scoring=KeyDiff()),
    "knorm": Eviction(scoring=KNorm()),
    "snapkv": Eviction(scoring=WindowAttention(8)),
    "tova": Eviction(scoring=LastQuery(), granularity="layer"),
    "h2o": Eviction(scoring=ColumnSums(recent=8)),
    "rkv": Eviction(scoring=RKV(window=8), decode_compression=DecodeCompression(every=4)),
}


def compressed(chosen, budget: int = BUDGET):
    model = tiny_model(num_layers=LAYERS).double()
    source = SharedPass(model, prompt(N), chosen.plan(N, LAYERS, budget), chosen.needs)
    return source.compress(chosen, budget)


def text(made, steps: int = 20) -> list[int]:
    return generate(tiny_model(num_layers=LAYERS).double(), made.caches, made.logits, steps, frozenset()).tokens


@pytest.mark.parametrize("name", POLICIES)
def test_a_prompt_of_one_chunk_is_cut_as_after_a_whole_prefill(name):
    one, other = compressed(ChunkedEviction(POLICIES[name], N)), compressed(POLICIES[name])
    assert torch.equal(one.logits, other.logits) and one.full_bytes == other.full_bytes
    for mine, theirs in zip(one.caches, other.caches, strict=True):
        assert mine.kept == theirs.kept
        assert all(torch.equal(a, b) for a, b in zip(mine.tensors(), theirs.tensors(), strict=True))
    assert text(one) == text(other)


@pytest.mark.parametrize("name", POLICIES)
def test_a_budget_of_prompt_and_answer_is_fullkv_token_for_token(name):
    chosen = ChunkedEviction(POLICIES[name], 16)
    assert chosen.plan(N, LAYERS, N) == FullPrefill()
    assert text(compressed(chosen, N + 20)) == text(compressed(FullKV(), N))


@pytest.mark.parametrize("name", POLICIES)
def test_every_layer_holds_the_budget_and_the_pass_little_more(name):
    made, whole = compressed(ChunkedEviction(POLICIES[name], 16)), compressed(FullKV(), N)
    token = 2 * 2 * 8 * 8
    for cache in made.caches:
        assert cache.k.length == BUDGET and cache.seen == N and cache.kept.nominal == BUDGET
        assert cache.kept.r1 == BUDGET / N and cache.kept.positions.text != "Z64"
    beside = sum(cache.nbytes for cache in made.caches) - LAYERS * BUDGET * token  # rings of queries, sums
    assert made.peak_bytes <= (LAYERS * BUDGET + 16 + BUDGET // 2) * token + beside < whole.peak_bytes
    assert made.full_bytes == whole.full_bytes and not torch.equal(made.logits, whole.logits)
    assert len(set(text(made))) > 3


def test_the_last_tokens_of_a_window_always_stay():
    state = SharedPass(
        tiny_model(num_layers=LAYERS),
        prompt(N),
        ChunkedEviction(POLICIES["snapkv"], 7).plan(N, LAYERS, BUDGET),
        POLICIES["snapkv"].needs,
    ).state
    for layer in state.layers:
        assert layer.positions[:, -8:].tolist() == [list(range(N - 8, N))] * 2
        assert layer.positions.diff(dim=1).min() > 0 and layer.queries.shape[1] == 8


def test_while_decoding_the_cache_stays_at_the_budget():
    made = compressed(ChunkedEviction(Eviction(scoring=KeyDiff(), decode_compression=DecodeCompression(every=1)), 16))
    text(made, 12)
    assert [cache.k.length for cache in made.caches] == [BUDGET] * LAYERS


def test_settings_share_a_pass_where_rule_chunk_and_budget_are_the_same():
    same = (KeyDiff(), 16, 30)
    others = [(KeyDiff(window=4), 16, 30), (KeyDiff(), 8, 30), (KeyDiff(), 16, 31)]
    plans = [
        ChunkedEviction(Eviction(scoring=scoring), chunk).plan(N, LAYERS, budget)
        for scoring, chunk, budget in (same, same, *others)
    ]
    assert plans[0] == plans[1] and len(set(plans)) == 4


@pytest.mark.parametrize(
    "policy, message",
    [
        (Eviction(Pyramid()), "with Pyramid, EqualHeads, Dense and kv_head"),
        (Eviction(heads=AdaKV()), "with Uniform, AdaKV, Dense"),
        (Eviction(storage=Kivi()), "Kivi"),
        (Eviction(granularity="query_head"), "and query_head"),
        (Eviction(scoring=ExpectedAttention()), "ExpectedAttention reads what only the prefill of a whole prompt"),
        (Eviction(decode_compression=DecodeCompression(prompt="whole")), "decode_compression.prompt must be cut"),
    ],
)
def test_policies_that_cannot_go_on_chunk_after_chunk_are_refused(policy, message):
    with pytest.raises(UserError, match=message) as error:
        ChunkedEviction(policy)
    assert "\n" not in str(error.value)


def test_it_is_measured_in_shared_memory():
    with pytest.raises(UserError, match="'keydiff_paper', whose layers are compressed together"):
        check_memory("stream", [Setting("keydiff_paper", method("keydiff_paper"), "{}", ratio=0.2)])


def test_the_preset_is_the_papers_block_processing():
    paper = method("keydiff_paper")
    assert paper.chunk == 128 and paper.policy.scoring == KeyDiff() and paper.compress_at == "in_prefill"
    assert paper.policy.decode_compression == DecodeCompression(every=1)
