"""KIVI: the error bound, the residual layout, the bytes, and its composition with methods that evict."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvbench.cache.quantised.sequence import QuantisedKeys, QuantisedValues
from kvbench.errors import UserError
from kvbench.evaluation.decode import generate
from kvbench.methods import Dense, Eviction, FullKV, Kivi, Pyramid, StreamingLLM, WindowAttention
from kvbench.methods.selection import Selection
from kvbench.ops.quantise import CHANNELS, TOKENS, Quantiser, pack, unpack
from kvbench.prefill import Needs, prefill
from tests.support import config as composed
from tests.support.quantised import check_own_memory
from tests.support.tiny import LAYOUTS, prompt, random_layer, random_state, ratio_of, tiny_model

pytestmark = pytest.mark.heavy

DTYPES = (torch.float32, torch.float16, torch.bfloat16)


def plain_quantise(x, bits, group, axis):
    """Element by element: reconstruction and scale of x [heads, t, d], as the scheme is written."""
    back, scales = torch.zeros_like(x), torch.zeros_like(x)
    heads, t, d = x.shape
    for head in range(heads):
        for i in range(t):
            for j in range(d):
                if axis == TOKENS:
                    members = x[head, i - i % group : i - i % group + group, j]
                else:
                    members = x[head, i, j - j % group : j - j % group + group]
                low, high = members.min().item(), members.max().item()
                scale = torch.tensor((high - low) / (2**bits - 1)).to(x.dtype).item() or 1.0
                code = min(max(round((x[head, i, j].item() - low) / scale), 0), 2**bits - 1)
                back[head, i, j] = code * scale + low
                scales[head, i, j] = scale
    return back, scales


@given(st.sampled_from([2, 4, 8]), st.integers(1, 5), st.integers(0, 99))
def test_packing_fills_every_bit_and_is_undone(bits, width, seed):
    generator = torch.Generator().manual_seed(seed)
    codes = torch.randint(0, 2**bits, (2, 3, 8 * width), generator=generator, dtype=torch.uint8)
    packed = pack(codes, bits)
    assert packed.shape == (2, 3, width * bits) and packed.dtype == torch.uint8
    assert torch.equal(unpack(packed, bits), codes)


@pytest.mark.parametrize("axis", [TOKENS, CHANNELS])
@pytest.mark.parametrize("bits", [2, 4, 8])
def test_codes_are_those_of_the_scheme_read_element_by_element(bits, axis):
    x = torch.randn(2, 8, 8)
    quantiser = Quantiser(bits, 4, axis)
    packed, scale, low = quantiser(x)
    assert scale.shape == low.shape == ((2, 2, 8) if axis == TOKENS else (2, 8, 2))
    torch.testing.assert_close(quantiser.restore(packed, scale, low), plain_quantise(x, bits, 4, axis)[0])


@given(
    st.sampled_from([2, 4, 8]),
    st.sampled_from([TOKENS, CHANNELS]),
    st.sampled_from(DTYPES),
    st.sampled_from([0.01, 1.0, 300.0]),
    st.sampled_from([0.0, 1.0, -200.0]),
    st.integers(0, 999),
)
def test_no_element_is_off_by_more_than_half_a_step(bits, axis, dtype, spread, offset, seed):
    x = (torch.randn(2, 8, 16, generator=torch.Generator().manual_seed(seed)) * spread + offset).to(dtype)
    quantiser = Quantiser(bits, 8, axis)
    packed, scale, low = quantiser(x)
    back = quantiser.restore(packed, scale, low)
    assert back.dtype == dtype and back.isfinite().all()
    step = scale.float().repeat_interleave(8, dim=axis)
    rounding = torch.finfo(dtype).eps * x.abs().max().float()  # of the restored number itself
    assert ((back.float() - x.float()).abs() <= step / 2 * 1.001 + rounding).all()


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("value", [0.0, -3.7, 60000.0])
def test_a_constant_group_comes_back_exactly(dtype, value):
    x = torch.full((1, 8, 8), value, dtype=dtype)
    for axis in (TOKENS, CHANNELS):
        quantiser = Quantiser(2, 8, axis)
        assert torch.equal(quantiser.restore(*quantiser(x)), x)
        assert (quantiser(x)[1] == 1).all()  # nothing was divided by zero on the way


def test_the_widest_float16_range_does_not_overflow():
    x = torch.tensor([-65504.0, 65504.0] * 4, dtype=torch.float16).view(1, 1, 8)
    quantiser = Quantiser(4, 8, CHANNELS)
    torch.testing.assert_close(quantiser.restore(*quantiser(x)), x)


def test_keys_share_a_scale_along_tokens_and_values_along_channels():
    # one loud channel: per channel it does not disturb the others, per token it does
    x = torch.randn(1, 32, 8)
    x[..., 3] *= 1000
    quiet = [channel for channel in range(8) if channel != 3]
    keys, values = QuantisedKeys(x, 4, 8, 8).read(), QuantisedValues(x, 4, 8, 8).read()
    assert (keys - x)[..., quiet].abs().max() < 0.3
    assert (values - x)[:, :-8, quiet].abs().max() > 0.5


@pytest.mark.parametrize("n", [1, 7, 8, 9, 15, 16, 17, 40])
def test_the_residual_of_a_prompt_is_the_official_one(n):
    x = torch.randn(2, n, 8)
    keys, values = QuantisedKeys(x, 2, 4, 8), QuantisedValues(x, 2, 4, 8)
    assert keys.residual.shape[1] == n % 8
    assert values.residual.shape[1] == min(n, 8)
    assert torch.equal(keys.read()[:, n - n % 8 :], x[:, n - n % 8 :])
    assert torch.equal(values.read()[:, max(0, n - 8) :], x[:, max(0, n - 8) :])
    quantised = values.read()[:, : max(0, n - 8)]
    assert n <= 8 or not torch.equal(quantised, x[:, : n - 8])


@given(st.integers(1, 30), st.integers(0, 40), st.sampled_from([2, 4]), st.sampled_from([(4, 4), (4, 8), (8, 16)]))
def test_decoding_token_by_token_is_quantising_at_once(n, steps, bits, sizes):
    x = torch.randn(2, n + steps, 8, generator=torch.Generator().manual_seed(n))
    for kind in (QuantisedKeys, QuantisedValues):
        grown, whole = kind(x[:, :n], bits, *sizes), kind(x, bits, *sizes)
        for i in range(n, n + steps):
            grown.append(x[:, i : i + 1])
        assert grown.residual.shape == whole.residual.shape
        assert torch.equal(grown.read(), whole.read())


def test_a_key_block_is_quantised_when_the_residual_is_full_and_a_value_with_every_step():
    keys, values = (kind(torch.randn(1, 8, 8), 4, 4, 8) for kind in (QuantisedKeys, QuantisedValues))
    lengths = []
    for _ in range(9):
        keys.append(torch.randn(1, 1, 8))
        values.append(torch.randn(1, 1, 8))
        lengths.append((keys.residual.shape[1], values.residual.shape[1]))
    assert lengths == [(i % 8, 8) for i in range(1, 10)]


def test_the_reference_ratio_of_8192_tokens_at_4_bits():
    layer = random_layer(2, 1, 8192, 32, dtype=torch.float16, observed=False)
    cache = Kivi(4, 32, 128).store(layer, Selection.everything(layer))
    assert cache.kept.r1 * cache.kept.r2 * cache.kept.r3 == pytest.approx(0.3179, abs=5e-5)
    assert cache.nbytes / layer.nbytes == pytest.approx(cache.kept.r3, abs=1e-12)


@given(
    st.integers(1, 50),
    st.sampled_from([2, 4, 8]),
    st.sampled_from([(4, 4), (4, 12), (8, 16)]),
    st.sampled_from(DTYPES),
    st.sampled_from(list(LAYOUTS.values())),
)
def test_bytes_are_the_formulas_and_the_ratio_follows(n, bits, sizes, dtype, heads):
    group, residual = sizes
    state = random_state(2, heads=heads[0], kv_heads=heads[1], n=n, dtype=dtype)
    caches = FullKV(Kivi(bits, group, residual)).compress(state, n)
    element = torch.finfo(dtype).bits
    quantised_keys, quantised_values = n - n % residual, max(0, n - residual)
    quantised = quantised_keys + quantised_values
    head_dim = 8
    per_head = (quantised * (bits + 2 * element / group) + (2 * n - quantised) * element) * head_dim / 8
    for cache in caches:
        assert cache.nbytes == heads[1] * per_head
    ratio = ratio_of(caches, state)
    assert ratio.r1 == ratio.r2 == 1
    assert ratio.r == pytest.approx(per_head / (2 * n * head_dim * element / 8))
    assert ratio.r_bytes == pytest.approx(ratio.r)


def test_stored_bytes_stay_within_the_formula_and_a_block_while_decoding():
    layer = random_layer(n=40, head_dim=32, dtype=torch.float16)
    cache = Kivi(4, 32, 32).store(layer, Selection.everything(layer))
    for _ in range(100):
        new = torch.randn(1, 2, 1, 32, dtype=torch.float16)
        cache.update(new, new)
    quantised_keys, quantised_values = 128, 140 - 32
    exact = 2 * ((quantised_keys + quantised_values) * 32 * 5 / 8 + (12 + 32) * 32 * 2)
    # values: codes and scales of one block of rows; keys: the rest of the ring, which has no room for what left it
    slack = 2 * (63 * 32 * 5 / 8 + (32 - 12) * 32 * 2)
    assert exact <= cache.nbytes <= exact + slack
    for ring in (cache.k.ring.buffer, cache.v.ring.buffer):
        assert ring.untyped_storage().nbytes() == ring.nbytes == 2 * 32 * 32 * 2
    assert cache.get_seq_length() == 140


def test_nothing_of_the_prefill_state_is_kept():
    layer = random_layer(n=5)
    cache = Kivi(4, 4, 8).store(layer, Selection.everything(layer))
    check_own_memory([cache], [layer])


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_residual_that_nothing_outgrows_is_full_kv(layout):
    model = tiny_model(layout=layout).double()
    state = prefill(model, prompt(50), Needs())
    expected = generate(model, FullKV().compress(state, 50), state.logits, 30, frozenset()).tokens
    caches = FullKV(Kivi(2, 8, 80)).compress(state, 50)
    assert generate(model, caches, state.logits, 30, frozenset()).tokens == expected


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("granularity", ["kv_head", "query_head"])
def test_pyramidkv_at_4_bits_is_the_dense_pyramid_rounded(layout, granularity):
    heads, kv_heads = LAYOUTS[layout]
    state = random_state(heads=heads, kv_heads=kv_heads, n=60)
    choices = {"allocation": Pyramid(), "scoring": WindowAttention(8), "granularity": granularity}
    dense = Eviction(**choices, storage=Dense()).compress(state, 24)
    quantised = Eviction(**choices, storage=Kivi(8, 4, 8)).compress(state, 24)
    full = FullKV().compress(state, 60)
    for exact, rounded, whole in zip(dense, quantised, full, strict=True):
        assert rounded.kept.r1 == exact.kept.r1
        length = exact.k.length
        torch.testing.assert_close(rounded.k.read(), exact.k.view[0], atol=0.02, rtol=0)
        assert torch.equal(rounded.k.residual, exact.k.view[0, :, length - length % 8 :])
        outputs = []
        for cache in (exact, rounded, whole):
            new = torch.ones(1, kv_heads, 1, 8)
            cache.update(new, new)
            outputs.append(cache.attend(torch.ones(1, heads, 1, 8), 8**-0.5))
        torch.testing.assert_close(outputs[0], outputs[1], atol=0.02, rtol=0)
        assert not torch.allclose(outputs[1], outputs[2], atol=0.02)  # the test could see a wrong token


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("dtype", DTYPES)
def test_models_generate_through_it(layout, dtype):
    model = tiny_model(layout=layout).to(dtype)
    state = prefill(model, prompt(60), Needs(8))
    for method in (FullKV(Kivi(4, 8, 8)), Eviction(storage=Kivi(4, 8, 16), scoring=WindowAttention(8))):
        caches = method.compress(state, 30)
        tokens = generate(model, caches, state.logits, 25, frozenset()).tokens
        assert len(tokens) == 25 and tokens[0] == state.logits.argmax()
        assert all(cache.get_seq_length() == 60 + 24 for cache in caches)


def test_eight_bits_give_the_embedded_models_own_text(embedded):
    ids = embedded.encode("Tell me how bread is baked, step by step." * 8, chat=True)
    state = prefill(embedded.model, ids, Needs())
    expected = generate(embedded.model, FullKV().compress(state, state.n), state.logits, 8, frozenset())
    caches = FullKV(Kivi(8, 32, 32)).compress(state, state.n)
    assert generate(embedded.model, caches, state.logits, 8, frozenset()).tokens == expected.tokens
    assert ratio_of(caches, state).r_bytes < 0.6  # float32: 10 bits of 32 per element, and the residual


def test_streaming_llm_can_be_quantised():
    state = random_state(n=50)
    for cache in StreamingLLM(storage=Kivi(4, 4, 8)).compress(state, 20):
        assert cache.k.read().shape == (2, 20, 8)
        assert cache.kept.r1 == 0.4 and cache.kept.r3 < 1


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ({"bits": 3}, "bits=3 must be 2, 4 or 8"),
        ({"bits": "4"}, "bits='4'"),
        ({"group": 0}, "group=0"),
        ({"group": 3, "residual": 3}, "group=3 codes of 4 bits do not fill whole bytes"),
        ({"residual": 40}, "residual=40 must be a multiple of group=32"),
        ({"residual": 0}, "residual=0"),
    ],
)
def test_wrong_values_are_named(wrong, said):
    with pytest.raises(UserError, match=said):
        Kivi(**wrong)


def test_a_head_dimension_that_the_group_does_not_divide_is_refused():
    with pytest.raises(UserError, match="group=32 does not divide this model's head dimension of 80"):
        FullKV(Kivi()).compress(random_state(head_dim=80), 40)


@pytest.mark.parametrize("name", ["kivi", "pyramidkv_kivi4", "snapkv_kivi4"])
def test_the_configurations_build_what_they_are_named_after(name):
    method = composed.method(name)
    assert method.storage == Kivi(4, 32, 128)
    assert isinstance(method, FullKV if name == "kivi" else Eviction)
