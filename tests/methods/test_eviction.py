"""SnapKV, PyramidKV, H2O and StreamingLLM choose what their definitions say."""

import math
from dataclasses import dataclass

import pytest
import torch
import torch.nn.functional as F
from hypothesis import given
from hypothesis import strategies as st

from kvbench.errors import UserError
from kvbench.evaluation.settings import build_settings
from kvbench.methods import H2O, ColumnSums, Dense, Eviction, Pyramid, StreamingLLM, Uniform, WindowAttention
from kvbench.methods.selection import top_indices
from tests.support.my_method import KeyNorm, MyMethod
from tests.support.tiny import random_layer, random_state

GRANULARITIES = st.sampled_from(["kv_head", "query_head"])
SCORINGS = st.sampled_from(
    [
        WindowAttention(4, 1),
        WindowAttention(8, 5, "avg"),
        WindowAttention(8, 7, "max"),
        ColumnSums(),
        ColumnSums(recent=8, score="mean"),
        ColumnSums(recent=0),
    ]
)


def plain_top(scores: list[float], k: int) -> list[int]:
    return sorted(sorted(range(len(scores)), key=lambda i: (-scores[i], i))[:k])


@given(st.lists(st.sampled_from([0.0, 0.25, 1.0]), min_size=1, max_size=30), st.data())
def test_ties_go_to_the_smaller_index(scores, data):
    k = data.draw(st.integers(0, len(scores)))
    assert top_indices(torch.tensor([scores]), k)[0].tolist() == plain_top(scores, k)


def test_snapkv_reads_like_its_equation():
    """Sum the last w rows of the attention, pool over the context, take the best, keep the window."""
    layer = random_layer(heads=4, kv_heads=4, n=60, window=8)
    budget, w = 20, 8
    rows = layer.queries[:, -w:] @ layer.keys.mT * layer.scaling
    rows = rows.masked_fill(torch.ones(w, 60).triu(60 - w + 1).bool(), float("-inf")).softmax(-1)
    pooled = F.max_pool1d(rows.sum(1)[:, : 60 - w], 7, stride=1, padding=3)
    chosen = Eviction(scoring=WindowAttention(w, 7)).select(layer, 0, 4, budget).indices
    for head in range(4):
        assert chosen[head].tolist() == plain_top(pooled[head].tolist(), budget - w) + list(range(60 - w, 60))


def test_h2o_keeps_the_heaviest_columns_and_the_recent_half():
    layer = random_layer(heads=4, kv_heads=2, n=40)
    chosen = H2O().select(layer, 0, 4, 11).indices
    sums = layer.column_sums.unflatten(0, (2, 2)).mean(1)
    for head in range(2):  # half of 11 is 5 recent, so 6 heavy
        assert chosen[head].tolist() == plain_top(sums[head, :35].tolist(), 6) + list(range(35, 40))


def test_h2o_mean_divides_by_the_queries_that_can_see_a_key():
    layer = random_layer(heads=2, kv_heads=2, n=30)
    votes = ColumnSums(score="mean").votes(layer)
    assert torch.allclose(votes[:, -1], layer.column_sums[:, -1])
    assert torch.allclose(votes[:, 0] * 30, layer.column_sums[:, 0])


def test_streaming_llm_keeps_sinks_and_recents_alike_in_every_head():
    layer = random_layer(n=50)
    cache = StreamingLLM(sinks=4).compress_layer(layer, 0, 4, 12)
    keep = [0, 1, 2, 3, *range(42, 50)]
    assert torch.equal(cache.k.view[0], layer.keys[:, keep])
    assert torch.equal(cache.v.view[0], layer.values[:, keep])


@given(
    scoring=SCORINGS,
    granularity=GRANULARITIES,
    alloc=st.sampled_from(["exact", "official", "kvpress"]),
    heads=st.sampled_from([(4, 4), (6, 2), (4, 1)]),
    n=st.integers(12, 70),
    share=st.floats(0, 1),
    dtype=st.sampled_from([torch.float32, torch.float16, torch.bfloat16]),
)
def test_selections_are_sorted_sets_of_the_allocated_size_with_the_window_in_them(
    scoring, granularity, alloc, heads, n, share, dtype
):
    method = Eviction(Pyramid(4, alloc), scoring, granularity)
    budget = method.minimum_budget + int(share * (n - method.minimum_budget))
    state = random_state(5, heads=heads[0], kv_heads=heads[1], n=n, dtype=dtype)
    for index, layer in enumerate(state.layers):
        selection = method.select(layer, index, 5, budget)
        if budget >= n:
            assert selection.indices is None
            continue
        window = scoring.protected(budget)
        assert selection.indices.shape == (heads[granularity == "kv_head"], selection.nominal)
        for row in selection.indices.tolist():
            assert row == sorted(set(row))
            assert row[len(row) - window :] == list(range(n - window, n))
            assert all(i >= 0 for i in row)


@given(scoring=SCORINGS, granularity=GRANULARITIES, n=st.integers(20, 60), data=st.data())
def test_more_budget_keeps_everything_a_smaller_one_kept(scoring, granularity, n, data):
    if isinstance(scoring, ColumnSums) and scoring.recent is None:
        return  # its recent half moves with the budget
    method = Eviction(scoring=scoring, granularity=granularity)
    small, large = sorted(data.draw(st.lists(st.integers(method.minimum_budget, n - 1), min_size=2, max_size=2)))
    layer = random_layer(n=n)
    few, many = (method.select(layer, 0, 4, budget).indices.tolist() for budget in (small, large))
    assert all(set(a) <= set(b) for a, b in zip(few, many, strict=True))


@given(scoring=SCORINGS, n=st.integers(20, 60), budget=st.integers(10, 19))
def test_with_one_query_head_per_kv_head_both_granularities_agree(scoring, n, budget):
    layer = random_layer(heads=4, kv_heads=4, n=n)
    by_query, by_kv = (
        Eviction(scoring=scoring, granularity=g).select(layer, 0, 4, budget) for g in ("query_head", "kv_head")
    )
    assert torch.equal(by_query.indices, by_kv.indices)


def test_identical_query_heads_of_a_group_choose_what_their_kv_head_chooses():
    layer = random_layer(heads=2, kv_heads=2, n=40)
    twins = random_layer(heads=4, kv_heads=2, n=40)
    twins.keys, twins.values = layer.keys, layer.values
    twins.queries = layer.queries.repeat_interleave(2, 0)
    by_query = Eviction(scoring=WindowAttention(8), granularity="query_head").select(twins, 0, 4, 16).indices
    by_kv = Eviction(scoring=WindowAttention(8)).select(twins, 0, 4, 16).indices
    assert torch.equal(by_query, by_kv.repeat_interleave(2, 0))


def test_a_prompt_of_one_token_repeated_breaks_its_ties_to_the_front():
    """A query of one channel makes each logit of one product, and a softmax over 32 equal ones is 1/32: no sum that a
    CPU may round in its own order."""
    layer = random_layer(heads=2, kv_heads=1, n=32)
    layer.keys = layer.keys[:, :1].expand(1, 32, 8).contiguous()
    layer.queries[..., 1:] = 0
    method = Eviction(scoring=WindowAttention(1, 1))
    assert method.scoring.votes(layer)[..., :-1].unique().tolist() == [1 / 32]
    assert method.select(layer, 0, 4, 10).indices[0].tolist() == [*range(9), 31]


@pytest.mark.parametrize("n", [1, 4, 7, 8, 9, 15, 16, 17, 23, 24, 32, 40])
@pytest.mark.parametrize("budget", [9, 16])
def test_edge_sizes(n, budget):
    """Prompts around the window, the budget and twice the context budget."""
    state = random_state(3, n=n, window=min(8, n))
    methods = [
        Eviction(scoring=WindowAttention(8, 1)),
        Eviction(Pyramid(2), WindowAttention(8)),
        Eviction(Pyramid(2, "official"), WindowAttention(8), "query_head"),
        Eviction(Pyramid(2, "kvpress"), WindowAttention(8), "query_head", storage=Dense("union")),
        H2O(),
        H2O(decode="update"),
        StreamingLLM(),
        StreamingLLM(decode="evict"),
    ]
    for method in methods:
        caches = method.compress(state, budget)
        kept = [cache.kept.r1 * n for cache in caches]
        assert max(kept) <= n + 1e-9
        if n <= budget:
            assert kept == [n] * 3
        elif "official" in repr(method):
            assert sum(kept) >= 3 * budget - 1e-9
        else:
            assert sum(kept) == pytest.approx(3 * budget, abs=1.5 if "kvpress" in repr(method) else 1e-9)


def test_the_smallest_budget_is_derived_from_what_a_scoring_protects():
    """The documentation's own method protects 8 tokens and says nothing else."""
    assert KeyNorm().minimum_budget == MyMethod().minimum_budget == 9
    assert KeyNorm(recent=0).minimum_budget == 1
    assert [ColumnSums(recent).minimum_budget for recent in (None, 0, 8)] == [2, 1, 9]
    assert WindowAttention(16).minimum_budget == 17

    @dataclass
    class MostOfIt(KeyNorm):
        def protected(self, budget):
            return math.ceil(0.9 * budget)

    @dataclass
    class AllOfIt(KeyNorm):
        def protected(self, budget):
            return budget

    assert MostOfIt().minimum_budget == 10
    with pytest.raises(UserError, match="AllOfIt protects every token of any budget"):
        _ = AllOfIt().minimum_budget


def test_a_budget_below_what_is_always_kept_is_refused_not_turned_round():
    """A negative count of tokens to choose kept nearly all of them."""
    state = random_state(2, n=100)
    with pytest.raises(UserError, match="budget of 4 leaves 4 tokens to a layer, but KeyNorm always keeps the last 8"):
        MyMethod().compress(state, 4)
    with pytest.raises(UserError, match=r"budget 4 is too small for 'mine': .* at least 9 are needed"):
        build_settings({"mine": {"_target_": "tests.support.my_method.MyMethod"}}, None, 4)
    (one,) = build_settings({"mine": {"_target_": "tests.support.my_method.MyMethod"}}, 0.01, None)
    caches = one.method.compress(state, one.budget_at(100, 2))
    assert [cache.kept.r1 for cache in caches] == [0.09] * 2

    class Uneven(Uniform):
        def tokens(self, budget, n, window, num_layers):
            return [2 * budget - 5, 5]

    with pytest.raises(UserError, match="budget of 20 leaves 5 tokens to a layer, but KeyNorm always keeps the last 8"):
        MyMethod(allocation=Uneven()).compress(state, 20)


def test_the_tokens_of_all_layers_are_computed_once():
    calls = []

    class Counting(Uniform):
        def tokens(self, *arguments):
            calls.append(arguments)
            return super().tokens(*arguments)

    method, state = Eviction(Counting(), WindowAttention(8)), random_state(4, n=60)
    whole = method.compress(state, 20)
    streamed = [method.compress_layer(layer, index, 4, 20) for index, layer in enumerate(state.layers)]
    assert calls == [(20, 60, 8, 4)]
    assert [cache.kept for cache in whole] == [cache.kept for cache in streamed]


def test_h2o_scores_do_not_saturate_in_half_precision():
    """A first token's column sum passes 2048, where float16 counting would stand still."""
    n = 5000
    layer = random_layer(heads=1, kv_heads=1, n=n, dtype=torch.float16)
    layer.keys = torch.zeros_like(layer.keys)
    layer.keys[:, 0] = 60.0
    queries = torch.full((1, n, 8), 60.0, dtype=torch.float16)
    from kvbench.ops.column_sums import column_sums

    sums, _ = column_sums(queries, layer.keys, layer.scaling)
    assert sums[0, 0] == pytest.approx(n, rel=1e-6)
    assert torch.isfinite(sums).all()


@pytest.mark.parametrize(
    "make, message",
    [
        (lambda: WindowAttention(kernel=4), "kernel=4 is even"),
        (lambda: WindowAttention(window=0), "window=0 must be an integer of at least 1"),
        (lambda: WindowAttention(pooling="mean"), "unknown pooling 'mean'.*Allowed: avg, max"),
        (lambda: ColumnSums(recent=-1), "recent=-1"),
        (lambda: ColumnSums(causal=False), "causal=false .* needs a number of recent tokens"),
        (lambda: ColumnSums(recent=8, score="mean", causal=False), "and score=sum, not recent=8 and score=mean"),
        (lambda: Eviction(granularity="head"), "unknown granularity 'head'"),
        (lambda: Dense("onion"), "Did you mean 'union'"),
        (
            lambda: H2O(decode="update", granularity="query_head", storage=Dense("union")),
            "needs dense, unfolded storage",
        ),
        (lambda: H2O(decode="update", granularity="layer"), "it needs granularity=kv_head or query_head, not layer"),
        (lambda: StreamingLLM(rope="rolling"), "needs decode=evict"),
        (lambda: StreamingLLM(sinks=-1), "sinks=-1"),
    ],
)
def test_bad_parameters_are_refused_in_one_sentence(make, message):
    with pytest.raises(UserError, match=message):
        make()


@pytest.mark.parametrize(
    ("values", "line"),
    [
        ({"granularity": "kv_hed"}, "unknown granularity 'kv_hed'. Did you mean 'kv_head'?"),
        ({"group_reduce": "median"}, "unknown group_reduce 'median'. Did you mean 'mean'? Allowed: max, mean, sum"),
        (
            {"grop_reduce": "max"},
            "unknown parameter of MyMethod 'grop_reduce'. Did you mean 'group_reduce'? Allowed: all",
        ),
        ({"scoring": {"recent": "x"}}, "recent='x' must be an integer"),
    ],
)
def test_a_method_of_the_users_checks_the_values_of_its_fields(values, line):
    values = {
        key: {"_target_": f"{KeyNorm.__module__}.KeyNorm"} | value if isinstance(value, dict) else value
        for key, value in values.items()
    }
    with pytest.raises(UserError) as error:
        build_settings({"mine": {"_target_": f"{MyMethod.__module__}.MyMethod", **values}}, 0.5, None)
    assert line in str(error.value)
