"""SqueezeAttention: the observation, the clustering, the budgets, and the policies that spend them."""

from itertools import product

import pytest
import torch
from hypothesis import assume, given
from hypothesis import strategies as st

from kvbench.errors import UserError
from kvbench.evaluation.decode import generate
from kvbench.methods import (
    H2O,
    ColumnSums,
    DecodeCompression,
    Dense,
    Eviction,
    FullKV,
    Kivi,
    KNorm,
    LagKV,
    MiniCache,
    Pyramid,
    SqueezeAttention,
    StreamingLLM,
    WindowAttention,
)
from kvbench.methods.squeezeattention import cluster
from kvbench.prefill import Needs, prefill
from kvbench.prefill.hidden_states import ROWS, hidden_similarities, mean_cosine
from tests.support import config as composed
from tests.support.experiments import config
from tests.support.tiny import LAYOUTS, SHAPES, prompt, random_state, ratio_of, tiny_model

OBSERVE = Needs(hidden_similarity=True)
POLICIES = [StreamingLLM(), StreamingLLM(decode="evict"), Eviction(scoring=WindowAttention(8)), H2O(decode="update")]


def state_with(similarities, **layer):
    state = random_state(len(similarities), **layer)
    for layer_state, similarity in zip(state.layers, similarities, strict=True):
        layer_state.hidden_similarity = similarity
    return state


def hook_count(model) -> int:
    return sum(len(module._forward_hooks) + len(module._forward_pre_hooks) for module in model.modules())


@pytest.mark.parametrize(("family", "layout"), SHAPES)
@pytest.mark.parametrize("n", [1, 40])
def test_the_similarity_is_that_of_the_residual_stream_around_attention(family, layout, n):
    # the stock model tells both ends by itself: hidden states between layers, and what the second norm reads
    stock = tiny_model(family, layout, implementation="sdpa")
    after = []
    for layer in stock.base_model.layers:
        layer.post_attention_layernorm.register_forward_pre_hook(lambda module, args: after.append(args[0][0]))
    with torch.no_grad():
        before = stock(prompt(n)[None], output_hidden_states=True).hidden_states
    expected = [torch.cosine_similarity(b[0], a, dim=-1).mean().item() for b, a in zip(before, after, strict=False)]
    state = prefill(tiny_model(family, layout), prompt(n), OBSERVE)
    assert [layer.hidden_similarity for layer in state.layers] == pytest.approx(expected, abs=1e-5)
    assert len({round(similarity, 4) for similarity in expected}) == 3


def test_only_a_run_that_asks_observes_and_no_hook_stays():
    model = tiny_model()
    assert [layer.hidden_similarity for layer in prefill(model, prompt(9), Needs()).layers] == [None] * 3
    before = hook_count(model)
    prefill(model, prompt(9), OBSERVE)
    assert hook_count(model) == before
    with pytest.raises(RuntimeError), hidden_similarities(model, range(3)):
        assert hook_count(model) > before
        raise RuntimeError
    assert hook_count(model) == before


def test_observing_changes_neither_logits_nor_cache():
    model = tiny_model()
    plain, observed = prefill(model, prompt(30), Needs()), prefill(model, prompt(30), OBSERVE)
    assert torch.equal(plain.logits, observed.logits)
    for a, b in zip(plain.layers, observed.layers, strict=True):
        assert torch.equal(a.keys, b.keys) and torch.equal(a.values, b.values)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
@pytest.mark.parametrize("n", [1, ROWS, ROWS + 1])
def test_the_mean_cosine_neither_overflows_nor_depends_on_the_tiles(n, dtype):
    before, added = (torch.randn(2, n, 16) * 500).to(dtype)  # squares pass float16's largest number
    expected = torch.cosine_similarity(before.double(), (before + added).double(), dim=-1).mean().item()
    assert mean_cosine(before, before + added) == pytest.approx(expected, abs=1e-6)


def test_needs_join():
    assert (Needs(8) | OBSERVE) == Needs(8, False, True) == (OBSERVE | Needs(8))


def test_a_model_without_such_layers_is_refused():
    model = torch.nn.Linear(2, 2)
    model.base_model = torch.nn.Linear(2, 2)
    with pytest.raises(UserError, match="Linear has no decoder layers"), hidden_similarities(model, range(3)):
        pass


def cost(values, labels) -> float:
    members = [[v for v, label in zip(values, labels, strict=True) if label == c] for c in set(labels)]
    return sum(sum((v - sum(m) / len(m)) ** 2 for v in m) for m in members)


@given(st.lists(st.integers(0, 50), min_size=1, max_size=7), st.sampled_from([1, 2, 3]))
def test_clusters_are_the_cheapest_of_all_partitions(values, k):
    values = [value / 50 for value in values]
    labels = cluster(values, k)
    cheapest = min(cost(values, labelling) for labelling in product(range(k), repeat=len(values)))
    assert cost(values, labels) == pytest.approx(cheapest, abs=1e-12)
    assert len(set(labels)) == min(k, len(set(values)))
    for a, b in product(range(len(values)), repeat=2):  # equal values together, labels in order of the values
        assert (values[a] < values[b]) <= (labels[a] <= labels[b])
        assert (values[a] == values[b]) <= (labels[a] == labels[b])


def test_clusters_are_found_in_differences_of_a_millionth():
    assert cluster([0.999998, 0.999990, 0.999999, 0.999991, 0.999980], 3) == [2, 1, 2, 1, 0]


@given(
    st.lists(st.floats(0, 1), min_size=1, max_size=12),
    st.integers(5, 300),
    st.integers(5, 300),
    st.floats(0.01, 1),
    st.booleans(),
    st.sampled_from(["return", "waste"]),
)
def test_budgets_sum_to_what_was_asked_and_squeeze_the_most_similar(similarities, n, budget, share, absolute, surplus):
    method = SqueezeAttention(**{"p3" if absolute else "squeeze": share}, surplus=surplus)
    budgets = method.budgets(similarities, budget, n)
    m = len(similarities)
    assert sum(budgets) == m * budget
    assert min(budgets) >= min(method.minimum_budget, budget)
    if surplus == "return":
        assert max(budgets) <= max(n, budget)
    assume(budget < n)
    labels = cluster(similarities, 3)
    squeezed = [b for b, label in zip(budgets, labels, strict=True) if label == max(labels)]
    others = [b for b, label in zip(budgets, labels, strict=True) if label < max(labels)]
    assert max(squeezed) <= min(others, default=max(squeezed))
    assert max(squeezed) - min(squeezed) <= 1 and (not others or max(others) - min(others) <= 1)


@pytest.mark.parametrize("n", [100, 107, 30])
def test_squeezed_layers_get_what_the_policy_keeps_of_any_prompt_and_the_others_pay_for_it(n):
    similarities = [0.2, 0.9, 0.6, 0.95, 0.1]
    method = SqueezeAttention(policy=LagKV(lag=16))  # the sinks, a partition and what follows it always stay
    floor = method.policy.floor(n, 5)
    assert method.floor(n, 5) == floor > method.minimum_budget
    for budget in (floor, min(floor + 4, n)):
        caches = method.compress(state_with(similarities, n=n), budget)
        assert sum(cache.k.length for cache in caches) == 5 * budget
        assert min(cache.k.length for cache in caches) == floor


class Around(KNorm):
    """The first and the last tokens of a prompt always stay, 32 of them."""

    def least(self, layer):
        return 32


@pytest.mark.parametrize("budget", [33, 40, 60])
def test_squeezed_layers_get_the_tokens_around_the_context_and_the_others_pay_for_them(budget):
    state = state_with([0.2, 0.9, 0.6, 0.95, 0.1], n=100)
    caches = SqueezeAttention(policy=Eviction(scoring=Around())).compress(state, budget)
    assert sum(cache.k.length for cache in caches) == 5 * budget


def test_the_budgets_of_the_codes_llama_setting():
    similarities = [0.5] * 4 + [0.7] * 16 + [0.9] * 12  # m = 32, n3 = 12
    for method in (SqueezeAttention(p3=0.25), SqueezeAttention(squeeze=0.625)):
        budgets = method.budgets(similarities, 400, 1000)
        assert budgets == [490] * 20 + [250] * 12  # a = (32 · 0.4 - 12 · 0.25) / 20


def test_p3_at_ini_and_layers_all_alike_are_uniform():
    assert SqueezeAttention(p3=0.21).budgets([0.1, 0.5, 0.9], 210, 1000) == [210] * 3
    assert SqueezeAttention(squeeze=1).budgets([0.1, 0.5, 0.9], 210, 1000) == [210] * 3
    assert SqueezeAttention(p3=0.5).budgets([0.1, 0.5, 0.9], 210, 1000) == [210] * 3
    assert SqueezeAttention().budgets([0.5] * 4, 210, 1000) == [210] * 4


def test_tokens_beyond_the_prompt_go_back_or_are_lost_and_the_ratio_says_so():
    # m = 4, ini = 0.8, p3 = 0.1, n3 = 2: a = (3.2 - 0.2) / 2 = 1.5
    state = state_with([0.1, 0.9, 0.9, 0.5], n=50)
    asked = {}
    for surplus in ("return", "waste"):
        method = SqueezeAttention(p3=0.1, surplus=surplus)
        asked[surplus] = method.budgets([0.1, 0.9, 0.9, 0.5], 40, 50)
        caches = method.compress(state, 40)
        ratio = ratio_of(caches, state)
        assert ratio.r == pytest.approx({"return": 0.8, "waste": (2 + 2 * 0.1) / 4}[surplus])
        assert ratio.r_bytes == pytest.approx(ratio.r)
    assert asked == {"return": [50, 30, 30, 50], "waste": [75, 5, 5, 75]}


@pytest.mark.parametrize(
    "policy", POLICIES, ids=lambda p: f"{type(p).__name__}-{p.decode if hasattr(p, 'decode') else ''}"
)
@pytest.mark.parametrize("n", [20, 41])
def test_every_layer_is_what_the_policy_makes_of_its_budget(policy, n):
    state = state_with([0.2, 0.9, 0.6, 0.95, 0.1], n=n)
    method = SqueezeAttention(policy=policy, squeeze=0.5)
    budget = 18
    budgets = method.budgets([layer.hidden_similarity for layer in state.layers], budget, n)
    assert len(set(budgets)) > 1
    for index, cache in enumerate(method.compress(state, budget)):
        expected = policy.compress_layer(state.layers[index], index, 5, budgets[index])
        assert cache.kept == expected.kept and cache.k.length == min(budgets[index], n)
        assert torch.equal(cache.k.view, expected.k.view) and torch.equal(cache.v.view, expected.v.view)


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_budget_that_holds_everything_is_full_kv(layout):
    model = tiny_model(layout=layout)
    state = prefill(model, prompt(40), OBSERVE)
    expected = generate(model, FullKV().compress(state, 40), state.logits, 20, frozenset()).tokens
    for budget in (40, 55):
        caches = SqueezeAttention().compress(state, budget)
        assert generate(model, caches, state.logits, 20, frozenset()).tokens == expected


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_models_generate_through_it_and_evicting_layers_stay_at_their_own_size(layout, dtype):
    model = tiny_model(layout=layout, num_layers=4).to(dtype)
    for policy in POLICIES:
        method = SqueezeAttention(policy=policy, squeeze=0.6)
        state = prefill(model, prompt(60), method.needs)
        caches = method.compress(state, 20)
        before = [cache.k.length for cache in caches]
        assert sum(before) == 80 and len(set(before)) > 1
        tokens = generate(model, caches, state.logits, 12, frozenset()).tokens
        assert len(tokens) == 12 and tokens[0] == state.logits.argmax()
        if isinstance(policy, StreamingLLM):
            grown = 0 if policy.decode == "evict" else 11
            assert [cache.k.length for cache in caches] == [length + grown for length in before]


def test_it_asks_for_what_its_policy_needs():
    method = SqueezeAttention(policy=Eviction(scoring=WindowAttention(16)))
    assert method.needs == Needs(16, False, True) and method.minimum_budget == 17
    assert SqueezeAttention(policy=Eviction(scoring=ColumnSums())).needs == Needs(0, True, True)
    assert StreamingLLM().needs == Needs()


def test_squeezed_layers_can_be_quantised_too():
    state = state_with([0.2, 0.9, 0.6, 0.95], n=60)
    caches = SqueezeAttention(policy=StreamingLLM(storage=Kivi(4, 4, 4))).compress(state, 24)
    assert sum(cache.k.read().shape[1] for cache in caches) == 96
    assert all(cache.kept.r3 < 1 for cache in caches)


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"p3": 0}, r"p3=0 must be a number above 0 and at most 1 or null"),
        ({"squeeze": 1.2}, "squeeze=1.2"),
        ({"squeeze": None}, "squeeze=None"),
        ({"surplus": "keep"}, "surplus 'keep'"),
        ({"policy": FullKV()}, "policy=FullKV takes no budget"),
        ({"policy": Eviction(allocation=Pyramid())}, "policy=Eviction divides the budget between layers itself"),
        ({"policy": SqueezeAttention()}, "policy=SqueezeAttention divides"),
        (
            {"policy": Eviction(decode_compression=DecodeCompression(of="total"))},
            "budget=None and of=total, but Squeeze",
        ),
        (
            {"policy": StreamingLLM(decode_compression=DecodeCompression(budget=40))},
            "it needs budget=null and of=prompt",
        ),
        ({"policy": StreamingLLM(storage=MiniCache())}, "MiniCache needs the same tokens in every layer"),
    ],
)
def test_wrong_values_and_combinations_without_meaning_are_named(wrong, said):
    with pytest.raises(UserError, match=said):
        SqueezeAttention(**wrong)


@pytest.mark.parametrize(
    ("name", "policy"), [("squeeze", StreamingLLM(storage=Dense())), ("squeeze_snapkv", Eviction())]
)
def test_the_configurations_build_what_they_are_named_after(name, policy):
    method = composed.method(name)
    assert method == SqueezeAttention(policy=policy)


def test_table_10_has_the_token_policy_of_the_released_code_for_llama_2():
    policy = config("simlayerkv_table10").methods["squeeze"]["policy"]
    assert (policy["sinks"], policy["decode"], policy["rope"]) == (4, "evict", "rolling")
