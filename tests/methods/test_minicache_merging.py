"""MiniCache's merging of two layers: directions on the arc, lengths, tokens that stay apart."""

import math

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvbench.cache.sequence import SequenceLayer
from kvbench.evaluation.decode import generate
from kvbench.methods import FullKV, MiniCache
from kvbench.methods.minicache.storage import slerp
from kvbench.ops.bits import unpack_bits
from kvbench.prefill import Needs, PrefillState, prefill
from tests.support.minicache_layers import DTYPES, compress, pair_of
from tests.support.tiny import prompt, random_layer, random_state, tiny_model


def plain_slerp(x, y, t):
    """The formula, for one pair of vectors in double precision."""
    x, y = x.double() / x.double().norm(), y.double() / y.double().norm()
    angle = math.acos(float(x @ y))
    return (math.sin((1 - t) * angle) * x + math.sin(t * angle) * y) / math.sin(angle)


@given(st.floats(0, 1), st.integers(2, 16), st.integers(0, 999))
def test_the_direction_is_slerps_and_lies_at_t_on_the_arc(t, d, seed):
    x, y = torch.nn.functional.normalize(torch.randn(2, d, generator=torch.Generator().manual_seed(seed)), dim=1)
    e = slerp(x[None], y[None], (x @ y)[None], t)[0]
    torch.testing.assert_close(e.double(), plain_slerp(x, y, t), atol=2e-3, rtol=0)
    assert e.norm() == pytest.approx(1, abs=1e-5)
    angle = torch.arccos((x @ y).clamp(-1, 1))
    assert torch.arccos((x @ e).clamp(-1, 1)) == pytest.approx(float(t * angle), abs=2e-3)


@pytest.mark.parametrize("t", [0.0, 0.3, 0.5, 0.6, 1.0])
def test_directions_without_an_arc_are_unit_vectors_all_the_same(t):
    a, b = torch.nn.functional.normalize(torch.randn(2, 8), dim=1)
    zero = torch.zeros(8)
    equal, opposite = (slerp(a[None], y[None], torch.tensor([c]), t)[0] for y, c in ((a, 1.0), (-a, -1.0)))
    torch.testing.assert_close(equal, a)
    torch.testing.assert_close(opposite.abs(), a.abs())
    # merge gives a zero vector cosine 1: what is left of the two is the other's direction
    torch.testing.assert_close(slerp(zero[None], b[None], torch.ones(1), t)[0], b)
    torch.testing.assert_close(slerp(b[None], zero[None], torch.ones(1), t)[0], b)
    assert torch.equal(slerp(zero[None], zero[None], torch.ones(1), t)[0], zero)


@pytest.mark.parametrize(("t", "member"), [(0.0, 0), (1.0, 1)])
def test_at_the_ends_one_layer_is_restored_and_the_other_takes_its_directions(t, member):
    layers, caches = pair_of(t=t, retention=0.0)
    for sequence, rows in (("k", "keys"), ("v", "values")):
        true = [getattr(layer, rows) for layer in layers]
        read = [getattr(cache, sequence).read() for cache in caches]
        torch.testing.assert_close(read[member], true[member])
        other = 1 - member
        unit = torch.nn.functional.normalize(true[member], dim=-1)
        torch.testing.assert_close(read[other], unit * true[other].norm(dim=-1, keepdim=True))


@given(st.integers(1, 40), st.sampled_from([0.0, 0.05, 0.5]), st.sampled_from(DTYPES), st.integers(1, 3))
def test_merged_tokens_keep_their_length(n, retention, dtype, kv_heads):
    state = random_state(2, heads=kv_heads, kv_heads=kv_heads, n=n, dtype=dtype)
    for cache, layer in zip(compress(state, start=0, retention=retention), state.layers, strict=True):
        for read, true in ((cache.k.read(), layer.keys), (cache.v.read(), layer.values)):
            assert read.shape == true.shape and read.dtype == dtype
            eps = 4 * torch.finfo(dtype).eps
            torch.testing.assert_close(read.float().norm(dim=-1), true.float().norm(dim=-1), atol=1e-6, rtol=eps)


def test_equal_layers_come_back():
    layer = random_layer(n=30)
    for cache in compress(PrefillState([layer, layer], torch.zeros(97)), start=0, retention=0.1):
        torch.testing.assert_close(cache.k.read(), layer.keys)
        torch.testing.assert_close(cache.v.read(), layer.values)


@pytest.mark.parametrize("criterion", ["angle", "abs_cosine"])
@pytest.mark.parametrize("n", [1, 10, 37])
def test_the_tokens_whose_directions_part_most_come_back_bit_for_bit(criterion, n):
    layers, caches = pair_of(n, retention=0.2, criterion=criterion, dtype=torch.float16)
    count = math.ceil(0.2 * n)
    for sequence, rows in (("k", "keys"), ("v", "values")):
        true = [getattr(layer, rows) for layer in layers]
        read = [getattr(cache, sequence).read() for cache in caches]
        for head in range(2):
            cosines = [float(torch.cosine_similarity(true[0][head, i].float(), true[1][head, i].float(), 0))
                       for i in range(n)]  # fmt: skip
            cosines = [abs(c) if criterion == "abs_cosine" else c for c in cosines]
            expected = set(sorted(range(n), key=lambda i: cosines[i])[:count])
            same = [all(torch.equal(r[head, i], x[head, i]) for r, x in zip(read, true, strict=True)) for i in range(n)]
            assert {i for i in range(n) if same[i]} == expected


def test_ties_are_retained_from_the_front():
    layer = random_layer(n=20)
    state = PrefillState([layer, layer], torch.zeros(97))
    alike = torch.zeros_like(layer.keys)
    alike[..., 2] = 2.0  # of one channel, so that norms and products are exact: cosine 1 everywhere
    for state_layer in state.layers:
        state_layer.keys = alike
    cache = compress(state, start=0, retention=0.25)[0]
    assert cache.k.shared.bits.tolist() == [[0b11111, 0, 0]] * 2


def test_a_zero_vector_is_merged_for_it_loses_nothing():
    layers = [random_layer(n=20), random_layer(n=20, seed=1)]
    layers[0].keys[:, 3] = 0
    layers[1].keys[:, 5] = 0
    caches = compress(PrefillState(layers, torch.zeros(97)), start=0, retention=0.9)
    retained = unpack_bits(caches[0].k.shared.bits, 20)
    assert retained.sum(dim=1).tolist() == [18, 18] and not retained[:, [3, 5]].any()
    for cache, layer in zip(caches, layers, strict=True):
        torch.testing.assert_close(cache.k.read(), layer.keys)


def test_opposite_vectors_are_alike_only_by_absolute_cosine():
    layers = [random_layer(n=20), random_layer(n=20)]
    layers[1].keys = layers[0].keys.clone()
    layers[1].keys[:, 7] *= -1
    state = PrefillState(layers, torch.zeros(97))
    for criterion, restored in (("angle", True), ("abs_cosine", False)):
        read = compress(state, start=0, retention=0.05, criterion=criterion)[0].k.read()
        assert torch.equal(read[:, 7], layers[0].keys[:, 7]) == restored


def test_retaining_everything_is_full_kv():
    model = tiny_model(num_layers=4).double()
    state = prefill(model, prompt(50), Needs())
    for cache, layer in zip(compress(state, retention=1.0), state.layers, strict=True):
        if isinstance(cache, SequenceLayer):
            assert torch.equal(cache.k.read(), layer.keys) and torch.equal(cache.v.read(), layer.values)
    tokens = [
        generate(model, caches, state.logits, 30, frozenset()).tokens
        for caches in (compress(state, retention=1.0), FullKV().compress(state, 50), compress(state))
    ]
    assert tokens[0] == tokens[1] != tokens[2]


def test_the_two_rules_for_how_many():
    assert [MiniCache(retention=0.05).retained(n) for n in (1, 20, 21, 60, 8192)] == [1, 1, 2, 3, 410]
    assert [MiniCache(rule="simlayerkv").retained(n) for n in (9, 10, 1024, 1025, 9000)] == [0, 1, 102, 1024, 1024]
