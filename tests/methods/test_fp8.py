"""FP8 storage: scales, saturation, bytes and attention over codes."""

import pytest
import torch
from torch.testing import assert_close

from kvbench.cache.coded import sequence
from kvbench.cache.coded.float8 import Float8Sequence
from kvbench.errors import UserError
from kvbench.methods import Fp8, FullKV
from kvbench.methods.selection import Selection
from tests.support.quantised import TOLERANCE, check_attention, check_own_memory
from tests.support.tiny import random_layer, random_state

SCALES = ("unit", "head", "token", "channel")
DTYPES = (torch.float32, torch.float16, torch.bfloat16)


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("scale", SCALES)
def test_no_element_is_off_by_more_than_the_format_allows(scale, dtype):
    x = (torch.randn(2, 50, 16) * torch.logspace(-2, 2, 16)).to(dtype)
    sequence = Float8Sequence(x, scale)
    step = {"unit": torch.ones(1), "token": sequence.scale(sequence.length)}.get(scale, sequence.shared)
    step = step[..., None] if scale == "token" else step
    rounding = torch.finfo(dtype).eps * x.float().abs()  # of the restored number itself
    error = (sequence.read().float() - x.float()).abs()
    assert (error <= torch.maximum(x.float().abs() / 16, step / 1024) * 1.0001 + rounding).all()


def test_each_scale_is_the_largest_value_that_shares_it_over_448():
    x = torch.randn(2, 5, 8)
    assert_close(Float8Sequence(x, "head").shared.flatten(), x.abs().amax((1, 2)) / 448)
    assert_close(Float8Sequence(x, "channel").shared[:, 0], x.abs().amax(1) / 448)
    assert_close(Float8Sequence(x, "token").scale(x.shape[1]), x.abs().amax(2) / 448)
    assert Float8Sequence(x, "unit").shared is None


@pytest.mark.parametrize("scale", SCALES)
def test_powers_of_two_are_exact_and_quantising_twice_changes_nothing(scale):
    x = 2.0 ** torch.randint(-3, 4, (2, 9, 8)) * torch.randint(0, 2, (2, 9, 8)).mul(2).sub(1)
    x[:, :, 0], x[:, 0] = 448.0, 448.0  # every scale is 1
    once = Float8Sequence(x, scale).read()
    assert torch.equal(once, x)
    rough = Float8Sequence(torch.randn(2, 9, 8), scale).read()
    assert_close(Float8Sequence(rough, scale).read(), rough)


@pytest.mark.parametrize("scale", SCALES)
def test_zeros_stay_zeros(scale):
    sequence = Float8Sequence(torch.zeros(2, 4, 8), scale)
    sequence.append(torch.zeros(2, 1, 8))
    assert torch.equal(sequence.read(), torch.zeros(2, 5, 8))


def test_decoded_tokens_beyond_the_prompts_scale_are_cut_off_and_a_token_with_its_own_is_not():
    x, large = torch.ones(1, 3, 4), torch.full((1, 1, 4), 5.0)
    for scale, last in (("head", 1.0), ("channel", 1.0), ("token", 5.0), ("unit", 5.0)):
        sequence = Float8Sequence(x, scale)
        sequence.append(large)
        assert_close(sequence.read()[0, -1], torch.full((4,), last))


@pytest.mark.parametrize(("scale", "share"), [("unit", 0.5), ("token", 132 / 256), ("head", 0.5 + 4 / 100 / 256)])
def test_bytes_are_one_for_each_element_and_four_for_each_scale(scale, share):
    layer = random_layer(2, 1, 100, 128, dtype=torch.bfloat16)
    cache = Fp8(scale).store(layer, Selection.everything(layer))
    assert cache.kept.r3 == cache.nbytes / layer.nbytes == pytest.approx(share, abs=1e-12)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("scale", SCALES)
@pytest.mark.parametrize("granularity", ["kv_head", "query_head"])
def test_attention_over_codes_is_attention_over_the_restored_rows(scale, granularity, dtype, monkeypatch):
    monkeypatch.setattr(sequence, "CPU_ELEMENTS", 2 * 16 * 7)  # blocks of 7 tokens or fewer
    check_attention(Fp8(scale), granularity, random_layer(n=40, head_dim=16, dtype=dtype))


@pytest.mark.parametrize("scale", ["unit", "token"])
def test_a_prompt_quantised_at_once_is_one_quantised_token_by_token(scale):
    rows = torch.randn(2, 9, 8)
    whole, grown = Float8Sequence(rows, scale), Float8Sequence(rows[:, :4], scale)
    for i in range(4, 9):
        grown.append(rows[:, i : i + 1])
    assert torch.equal(whole.read(), grown.read())


def test_a_wrong_scale_is_named():
    with pytest.raises(UserError, match="scale"):
        Fp8("row")


def test_nothing_of_the_prefill_state_is_kept():
    state = random_state(2, n=5)
    check_own_memory(FullKV(Fp8()).compress(state, 5), state.layers)
