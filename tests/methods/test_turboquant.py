"""TurboQuant: squared errors, bytes, attention in the rotated space, layers that stay raw."""

import pytest
import torch
from torch.testing import assert_close

from kvbench.cache.coded import sequence
from kvbench.cache.dense import DenseLayer
from kvbench.errors import UserError
from kvbench.methods import FullKV, TurboQuant
from kvbench.methods.selection import Selection
from kvbench.methods.turboquant.sequence import RotatedSequence, UniformSequence
from tests.support.quantised import TOLERANCE, check_attention
from tests.support.tiny import random_layer, random_state

ERRORS = {2: 0.1175, 3: 0.0345, 4: 0.0095}  # of normal numbers, relative
VLLM = {"values": "uniform", "rotation": "plain_hadamard", "norm_correction": True}
# bytes of a token's key and value in a head of 128 channels; 512 of 16 bit vectors
BYTES = {
    "k8v4": (196, TurboQuant(4, keys="fp8", **VLLM)),
    "4bit_nc": (134, TurboQuant(4, **VLLM)),
    "k3v4_nc": (118, TurboQuant(3, 4, **VLLM)),
    "3bit_nc": (102, TurboQuant(3, **VLLM)),
    "both rotated": (100, TurboQuant(3)),
}
STORAGES = {**{name: storage for name, (_, storage) in BYTES.items()}, "two bits": TurboQuant(2, rotation="hadamard")}


def relative_error(x, kind="haar", bits=4, norm_correction=False):
    back = RotatedSequence(x, bits, kind, 0, norm_correction).read()
    return ((back - x).square().sum(-1) / x.square().sum(-1)).mean().item()


@pytest.mark.parametrize("kind", ["haar", "hadamard", "plain_hadamard"])
@pytest.mark.parametrize("bits", ERRORS)
def test_the_squared_error_of_gaussian_vectors_is_the_levels_own(bits, kind):
    x = torch.randn(1, 4000, 128) * 7
    assert relative_error(x, kind, bits) == pytest.approx(ERRORS[bits], rel=0.03)


@pytest.mark.parametrize("bits", ERRORS)
def test_a_haar_rotation_makes_that_of_vectors_with_one_channel_and_of_constant_ones(bits):
    """Over seeds, as each has one rotation."""
    for x in (torch.eye(128)[None, :1], torch.ones(1, 1, 128)):
        errors = [
            (RotatedSequence(x, bits, "haar", seed, False).read() - x).square().sum() / x.square().sum()
            for seed in range(60)
        ]
        assert torch.stack(errors).mean().item() == pytest.approx(ERRORS[bits], rel=0.06)


def test_a_plain_hadamard_transform_does_not():
    constant, one_channel = torch.ones(1, 1, 128), torch.eye(128)[None, 5:6]
    assert relative_error(constant, "plain_hadamard", 2) == pytest.approx(0.954, abs=1e-3)
    assert relative_error(constant, "hadamard", 2) < 0.2
    assert relative_error(one_channel, "plain_hadamard", 2) == pytest.approx(0.2605, abs=1e-3)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_norm_correction_keeps_lengths_and_without_it_vectors_shrink(dtype):
    x = torch.randn(2, 50, 64).to(dtype)
    lengths = x.float().norm(dim=-1)
    kept = RotatedSequence(x, 2, "haar", 0, True).read().float().norm(dim=-1)
    assert_close(kept, lengths, rtol=4e-3 if dtype == torch.bfloat16 else 1e-3, atol=0)
    shrunk = RotatedSequence(x, 2, "haar", 0, False).read().float()
    assert ((x * shrunk).sum(-1) / lengths**2).mean().item() == pytest.approx(0.882, abs=0.01)


def test_codes_do_not_depend_on_a_vectors_length_and_zero_stays_zero():
    x = torch.randn(1, 6, 32)
    first, second = (RotatedSequence(rows, 3, "haar", 0, False) for rows in (x, 4 * x))
    assert torch.equal(first.parts[0].view, second.parts[0].view)
    assert_close(second.read(), 4 * first.read())
    for correction in (False, True):
        zero = RotatedSequence(torch.zeros(1, 2, 32), 3, "haar", 0, correction)
        zero.append(torch.zeros(1, 1, 32))
        assert torch.equal(zero.read(), torch.zeros(1, 3, 32))


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_uniform_values_are_off_by_half_a_step_at_most(bits):
    x = torch.randn(2, 40, 32) * torch.logspace(-2, 2, 40)[:, None]
    x[0, 0] = 0.25  # a constant token
    back = UniformSequence(x, bits).read()
    step = (x.amax(-1) - x.amin(-1)) / (2**bits - 1)
    rounding = x.abs().amax(-1) * 2**-9 * 2**bits  # of the stored step and minimum
    assert ((back - x).abs() <= (step / 2 + rounding)[..., None]).all()
    assert_close(back[0, 0], x[0, 0], atol=1e-5, rtol=0)


@pytest.mark.parametrize("name", BYTES)
def test_bytes_per_token(name):
    expected, storage = BYTES[name]
    layer = random_layer(2, 1, 100, 128, dtype=torch.bfloat16)
    cache = storage.store(layer, Selection.everything(layer))
    assert cache.nbytes == cache.filled_bytes == 100 * expected
    assert cache.kept.r3 == pytest.approx(expected / 512)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("name", STORAGES)
@pytest.mark.parametrize("granularity", ["kv_head", "query_head"])
def test_attention_over_codes_is_attention_over_the_restored_rows(name, granularity, dtype, monkeypatch):
    monkeypatch.setattr(sequence, "CPU_ELEMENTS", 2 * 32 * 7)  # blocks of 7 tokens or fewer
    check_attention(STORAGES[name], granularity, random_layer(n=40, head_dim=32, dtype=dtype))


@pytest.mark.parametrize("name", STORAGES)
def test_a_prompt_quantised_at_once_is_one_quantised_token_by_token(name):
    layer = random_layer(n=9, head_dim=32)
    whole = STORAGES[name].store(layer, Selection.everything(layer))
    grown = STORAGES[name].store(layer, Selection(torch.arange(4)[None], 4))
    for i in range(4, 9):
        grown.update(layer.keys[None, :, i : i + 1], layer.values[None, :, i : i + 1])
    assert_close(whole.k.read(), grown.k.read())
    assert_close(whole.v.read(), grown.v.read())


def test_the_first_and_last_layers_stay_raw():
    caches = FullKV(TurboQuant(raw_layers=2)).compress(random_state(6, n=20), 20)
    assert [isinstance(cache, DenseLayer) for cache in caches] == [True, True, False, False, True, True]
    assert [cache.kept.r3 == 1 for cache in caches] == [True, True, False, False, True, True]


@pytest.mark.parametrize(
    ("storage", "head_dim", "said"),
    [
        (TurboQuant(), 20, "packs channels in eights, but this model has 20 per head"),
        (TurboQuant(rotation="hadamard"), 24, "a power of two, not 24: use haar"),
    ],
)
def test_a_head_dimension_that_does_not_fit_is_refused_in_a_line(storage, head_dim, said):
    with pytest.raises(UserError, match=said):
        FullKV(storage).compress(random_state(2, n=5, head_dim=head_dim), 5)


@pytest.mark.parametrize("wrong", [{"bits": 5}, {"value_bits": 1}, {"rotation": "random"}, {"seed": -1}])
def test_wrong_values_are_named(wrong):
    with pytest.raises(UserError, match=next(iter(wrong))):
        TurboQuant(**wrong)
