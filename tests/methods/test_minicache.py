"""MiniCache: which layers are pairs, bytes and ratios, decoding, other methods with it."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvbench.cache.dense import DenseLayer
from kvbench.cache.sequence import SequenceLayer
from kvbench.errors import UserError
from kvbench.evaluation.decode import generate
from kvbench.methods import H2O, Dense, Eviction, FullKV, Kivi, MiniCache, StreamingLLM
from kvbench.methods.selection import Selection
from kvbench.prefill import LayerState, Needs, PrefillState, prefill
from tests.support import config as composed
from tests.support.minicache_layers import DTYPES, compress, pair_of
from tests.support.tiny import LAYOUTS, prompt, random_layer, random_state, ratio_of, tiny_model


@pytest.mark.parametrize(
    ("layers", "start", "merged"),
    [
        (1, None, []),
        (2, None, []),
        (3, None, []),
        (4, None, [2, 3]),
        (5, None, [2, 3]),
        (6, None, [4, 5]),
        (8, None, [4, 5, 6, 7]),
        (7, 0, [0, 1, 2, 3, 4, 5]),
        (8, 5, [6, 7]),
    ],
)
def test_pairs_are_even_and_odd_layers_from_the_middle_up(layers, start, merged):
    caches = compress(random_state(layers, n=12), start=start)
    assert [i for i, cache in enumerate(caches) if isinstance(cache, SequenceLayer)] == merged
    assert all(isinstance(cache, DenseLayer) for i, cache in enumerate(caches) if i not in merged)


@pytest.mark.parametrize(("layers", "start"), [(4, 9), (4, 3), (5, 3), (1, 1)])
def test_a_start_above_the_last_pair_is_refused(layers, start):
    with pytest.raises(UserError, match=f"start={start} leaves no two of {layers} layers to merge"):
        compress(random_state(layers, n=12), start=start)


def test_a_32_layer_model_holds_the_directions_of_24():
    caches = compress(random_state(32, heads=1, kv_heads=1, n=3), retention=0.0)
    assert sum(cache.kept.r2 for cache in caches) == 24


def whole_ratio(n, **options) -> float:
    """r of a model with heads of 128 whose lower half is untouched and whose upper half is merged."""
    layers = [LayerState(*torch.randn(2, 1, n, 128).half(), 128**-0.5, 1) for _ in range(2)]
    kept = compress(PrefillState(layers, torch.zeros(97)), start=0, **options)[0].kept
    return (1 + kept.r1 * kept.r2 * kept.r3) / 2


def test_the_reference_ratio_of_8192_tokens():
    assert whole_ratio(8192) == pytest.approx(0.779, abs=5e-4)
    assert 1 / whole_ratio(8192) == pytest.approx(1.284, abs=1e-3)


@pytest.mark.parametrize(("n", "factor"), [(13500, 1.263), (10400, 1.245), (12100, 1.256), (3500, 1.11)])
def test_the_ratios_behind_simlayerkvs_table_2(n, factor):
    assert 1 / whole_ratio(n, rule="simlayerkv") == pytest.approx(factor, abs=1e-3)


@given(
    st.integers(1, 50),
    st.sampled_from([0.0, 0.05, 0.3, 1.0]),
    st.sampled_from(DTYPES),
    st.sampled_from(list(LAYOUTS.values())),
)
def test_bytes_are_the_formulas_with_the_shared_part_counted_once(n, retention, dtype, heads):
    state = random_state(2, heads=heads[0], kv_heads=heads[1], n=n, dtype=dtype)
    caches = compress(state, start=0, retention=retention)
    k, d, element = MiniCache(retention=retention).retained(n), 8, torch.finfo(dtype).bits // 8
    own = (n - k) * element + k * d * element
    shared = (n - k) * d * element + math.ceil(n / 8)
    assert [cache.nbytes for cache in caches] == [2 * heads[1] * (own + shared), 2 * heads[1] * own]
    everything = {}
    for cache in caches:
        for sequence in (cache.k, cache.v):
            for x in sequence.shared.tensors() + sequence.tensors():
                everything[x.untyped_storage().data_ptr()] = x.untyped_storage().nbytes()
    everything.pop(0, None)  # empty tensors
    assert sum(cache.nbytes for cache in caches) == sum(everything.values())
    assert caches[0].k.shared is caches[1].k.shared


def test_the_ratio_in_bytes_lies_below_the_papers_by_half_the_unmerged_share():
    state = random_state(4, n=2000, head_dim=64, dtype=torch.float16, observed=False)
    caches = compress(state, retention=0.1)
    ratio = ratio_of(caches, state)
    assert ratio.r == pytest.approx(0.5 + 0.5 * ((64 + 2) / 128 + 0.1))
    index = 1 / 8 / (64 * 2) / 2  # a bit per token and pair
    assert ratio.r_bytes == pytest.approx(0.5 + 0.5 * (0.9 * 66 / 128 + 0.1 + index), rel=1e-3)


def test_new_tokens_are_stored_raw():
    _, caches = pair_of(20)
    before = [cache.k.read() for cache in caches]
    for cache, prompt_keys in zip(caches, before, strict=True):
        new = torch.randn(1, 2, 3, 8)
        for i in range(3):
            cache.update(new[:, :, i : i + 1], new[:, :, i : i + 1])
        assert torch.equal(cache.k.read(), torch.cat([prompt_keys, new[0]], dim=1))
        assert cache.get_seq_length() == 23


def test_attention_is_that_over_the_restored_rows():
    layers, caches = pair_of(20)
    query = torch.randn(1, 6, 1, 8)
    for cache, layer in zip(caches, layers, strict=True):
        new = torch.randn(1, 2, 1, 8)
        cache.update(new, new)
        keys, values = (s.read().repeat_interleave(3, dim=0) for s in (cache.k, cache.v))
        weights = (query[0] @ keys.mT * layer.scaling).softmax(dim=-1)
        torch.testing.assert_close(cache.attend(query, layer.scaling)[0], weights @ values)


@pytest.mark.parametrize("dtype", DTYPES)
def test_zero_and_huge_vectors_stay_finite(dtype):
    layers = [random_layer(n=6, dtype=dtype), random_layer(n=6, dtype=dtype, seed=1)]
    for i, (a, b) in enumerate([(0, 1), (1, 0), (0, 0), (60000, 60000)]):
        layers[0].keys[:, i] = a
        layers[1].keys[:, i] = b
    for cache, layer in zip(
        compress(PrefillState(layers, torch.zeros(97)), start=0, retention=0.0), layers, strict=True
    ):
        read = cache.k.read()
        assert read.isfinite().all()
        eps = 4 * torch.finfo(dtype).eps
        torch.testing.assert_close(read[:, :3], layer.keys[:, :3], atol=eps, rtol=eps)


def test_the_prefill_state_is_left_alone_and_the_outcome_repeats():
    state = random_state(4, n=30)
    before = [layer.keys.clone() for layer in state.layers]
    first, second = compress(state), compress(state)
    new = torch.randn(1, 2, 1, 8)
    for cache in first:
        cache.update(new, new)
    assert all(torch.equal(layer.keys, keys) for layer, keys in zip(state.layers, before, strict=True))
    for a, b in zip(first[2:], second[2:], strict=True):
        assert torch.equal(a.k.read()[:, :-1], b.k.read())


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("storage", [Dense(), Kivi(4, 8, 16)])
def test_models_generate_through_it(layout, storage):
    model = tiny_model(layout=layout, num_layers=5)
    state = prefill(model, prompt(60), Needs())
    caches = compress(state, storage=storage)
    tokens = generate(model, caches, state.logits, 25, frozenset()).tokens
    assert len(tokens) == 25 and tokens[0] == state.logits.argmax()
    assert all(cache.get_seq_length() == 60 + 24 for cache in caches)


def test_with_kivi_directions_retained_and_new_tokens_are_quantised():
    options = {"retention": 0.2, "head_dim": 32, "dtype": torch.float16}
    _, exact = pair_of(200, **options)
    for bits, closeness in ((8, 0.03), (4, 0.45)):
        _, caches = pair_of(200, **options, storage=Kivi(bits, 32, 64))
        for cache, raw in zip(caches, exact, strict=True):
            torch.testing.assert_close(cache.k.read(), raw.k.read(), atol=closeness, rtol=0.02)
            torch.testing.assert_close(cache.v.read(), raw.v.read(), atol=closeness, rtol=0.02)
    merged, retained, element, code = 160, 40, 16, 4 + 1  # bits per element; 40 retained keys: 8 in no whole group
    directions = (merged - 32) * code + 32 * element, (merged - 64) * code + 64 * element  # keys in blocks of 64
    unmerged = 32 * code + 8 * element, retained * code
    heads, d = 2, 32
    bits = heads * sum(d * directions[i] + 200 + 2 * (d * unmerged[i] + merged * element) for i in (0, 1))
    assert sum(cache.nbytes for cache in caches) == bits / 8
    share = [directions[0] / merged / element, directions[1] / merged / element]
    tokens = [unmerged[0] / retained / element, unmerged[1] / retained / element]
    assert caches[0].kept.r3 == pytest.approx(sum(share[i] + 2 / d + 0.4 * tokens[i] for i in (0, 1)) / 2)
    new = torch.randn(1, 2, 1, 32, dtype=torch.float16)
    for _ in range(65):
        caches[1].update(new, new)
    assert caches[1].k.tail.residual.shape[1] == 1 and caches[1].v.tail.residual.shape[1] == 64
    assert torch.equal(caches[1].k.read()[:, -1], new[0, :, 0])


def test_the_same_tokens_in_both_layers_can_be_merged_after_eviction():
    state = random_state(4, n=50)
    caches = StreamingLLM(storage=MiniCache(retention=0.1)).compress(state, 20)
    for cache, layer in zip(caches[2:], state.layers[2:], strict=True):
        read, kept = cache.k.read(), torch.cat([layer.keys[:, :4], layer.keys[:, -16:]], dim=1)
        torch.testing.assert_close(read.norm(dim=-1), kept.norm(dim=-1))
        assert cache.kept.r1 == 0.4 and cache.kept.nominal == 20
    assert StreamingLLM(storage=MiniCache()).compress(state, 50)[3].kept.r1 == 1


def test_different_tokens_in_a_pair_are_refused_in_one_line():
    state = random_state(4, n=30)
    everything = Selection.everything(state.layers[0])
    some = [Selection(torch.arange(k)[None], k) for k in (10, 12)] + [Selection(torch.arange(1, 11)[None], 10)]
    for other in (some[1], some[2], everything):
        with pytest.raises(UserError, match=r"^layers 2 and 3 kept different tokens: [^\n]*$"):
            MiniCache().store_all(state.layers, [everything, everything, some[0], other])
    assert len(MiniCache().store_all(state.layers, [everything, some[0], some[1], some[1]])) == 4


def test_methods_that_keep_other_tokens_in_every_layer_are_refused_when_built():
    for method in (Eviction, H2O):
        with pytest.raises(UserError, match="MiniCache needs the same tokens in every layer"):
            method(storage=MiniCache())
    with pytest.raises(UserError, match="evict"):
        StreamingLLM(storage=MiniCache(), decode="evict")
    with pytest.raises(UserError, match="pairs"):
        MiniCache().store(random_layer(), Selection.everything(random_layer()))


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"t": 1.5}, "t=1.5 must be a number from 0 to 1"),
        ({"retention": -0.1}, "retention=-0.1"),
        ({"retention": "simlayerkv"}, "retention='simlayerkv'"),
        ({"start": -1}, "start=-1"),
        ({"rule": "paper"}, "rule 'paper'"),
        ({"criterion": "cosine"}, "criterion 'cosine'"),
        ({"storage": MiniCache()}, "into MiniCache"),
    ],
)
def test_wrong_values_are_named(wrong, said):
    with pytest.raises(UserError, match=said):
        MiniCache(**wrong)


@pytest.mark.parametrize(
    ("name", "storage"),
    [
        ("minicache", MiniCache()),
        ("minicache_kivi4", MiniCache(storage=Kivi())),
        ("minicache_simlayerkv", MiniCache(rule="simlayerkv", criterion="abs_cosine")),
    ],
)
def test_the_configurations_build_what_they_are_named_after(name, storage):
    method = composed.method(name)
    assert method == FullKV(storage)
