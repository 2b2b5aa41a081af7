"""INT8 storage: rounding, scales, bytes and attention over codes."""

import pytest
import torch
from torch.testing import assert_close

from kvbench.cache.coded import sequence
from kvbench.methods import Eviction, WindowAttention
from kvbench.methods.storage.base import KeptLayer
from kvbench.methods.storage.int8 import Int8, Int8Sequence
from tests.support.quantised import TOLERANCE, check_attention
from tests.support.tiny import random_layer, random_state


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
def test_no_element_is_off_by_more_than_half_a_step(dtype):
    x = (torch.randn(2, 50, 16) * torch.logspace(-2, 2, 16)).to(dtype)
    steps = x.float().abs().amax(dim=2, keepdim=True) / 127
    error = (Int8Sequence(x).read().float() - x.float()).abs()
    rounding = torch.finfo(dtype).eps * x.float().abs()  # of the restored number itself
    assert (error <= steps / 2 * 1.0001 + rounding).all()


def test_codes_of_a_row_by_hand():
    """The largest is 127 steps, half a step goes to the even code, and a later row has a scale of its own."""
    stored = Int8Sequence(torch.tensor([[[254.0, -127.0, 3.0, 0.5]]]))
    stored.append(torch.tensor([[[-1.0, 0.5, 0.0, 0.25]]]))
    codes, scales = (part.buffer[0, : stored.length] for part in stored.parts)
    assert codes.tolist() == [[127, -64, 2, 0], [-127, 64, 0, 32]]
    assert_close(scales[:, 0], torch.tensor([2.0, 1 / 127]))


def test_zeros_stay_zeros_and_a_row_with_nan_or_infinity_is_nan_alone():
    x = torch.ones(1, 4, 4)
    x[0, 1] = 0
    x[0, 2, 3], x[0, 3, 3] = float("nan"), float("inf")
    read = Int8Sequence(x).read()
    assert_close(read[0, :2], x[0, :2])
    assert read[0, 2:].isnan().all()


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("granularity", ["kv_head", "query_head"])
def test_attention_over_codes_is_attention_over_the_restored_rows(granularity, dtype, monkeypatch):
    monkeypatch.setattr(sequence, "CPU_ELEMENTS", 2 * 16 * 7)  # blocks of 7 tokens or fewer
    check_attention(Int8(), granularity, random_layer(n=40, head_dim=16, dtype=dtype))


def test_bytes_are_a_byte_an_element_and_four_for_each_token_of_a_head():
    state = random_state(4, n=40, head_dim=16)
    method = Eviction(scoring=WindowAttention(window=8), granularity="kv_head", storage=Int8())
    for layer, cache in zip(state.layers, method.compress(state, 20), strict=True):
        assert cache.nbytes == 2 * 2 * 20 * (16 + 4)
        share = Int8().least_share(4, KeptLayer(20, 2, 16, 0, 4))
        assert cache.nbytes == share * 2 * 2 * 20 * 16 * 4 and cache.kept.r3 == pytest.approx(share)
        assert Int8().least_share(4) == 0.25 < share and cache.nbytes < layer.nbytes
