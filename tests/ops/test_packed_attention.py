"""Attention over packed segments: every way of computing it gives what each head gives by itself."""

import sys
from types import ModuleType

import pytest
import torch
from torch.testing import assert_close

from kvbench.ops import varlen_attention as varlen
from kvbench.ops.attention import dense_attention
from kvbench.ops.packed_append import packed_append
from kvbench.ops.packed_attention import _torch_has_a_kernel, packed_attention
from kvbench.ops.padded_attention import padded_attention
from tests.reference.plain_packed import Segments, plain_packed_attention, segments
from tests.reference.plain_varlen import plain_varlen_attn

TOLERANCE = {torch.float32: {"atol": 2e-6, "rtol": 2e-6}, torch.bfloat16: {"atol": 2e-2, "rtol": 2e-2}}
CASES = {
    "rows of one shape": {"rows": [[9, 9], [9, 9]], "heads": 6},
    "rows of several shapes": {"rows": [[9, 9], [7, 7, 7, 7], [9, 9]], "heads": 4},
    "ragged heads": {"rows": [[9, 4, 0], [1, 30, 11]], "heads": 6},
    "one head that all share": {"rows": [[9], [9], [5]], "heads": 8},
    "blocks of queries": {"rows": [[9, 9], [5, 13]], "heads": 4, "q": 5},
    "bits": {"rows": [[17, 30], [9, 9]], "heads": 6, "masked": [[10, 30], [0, 0]]},
    "bits and blocks of queries": {"rows": [[17, 30], [9, 12]], "heads": 6, "q": 3, "masked": [[10, 8], [0, 9]]},
}


def padded(given: Segments):
    query, keys, values, starts, lengths, heads, _, *others = given.arguments()
    return padded_attention(query, keys, values, starts, lengths, heads, *others)


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("compute", [lambda given: packed_attention(*given.arguments()), padded], ids=["cpu", "padded"])
@pytest.mark.parametrize("case", CASES.values(), ids=CASES)
def test_every_query_head_attends_to_its_own_segment(case, compute, dtype):
    given = segments(**case, head_dim=16, dtype=dtype)
    out = compute(given)
    assert out.dtype == dtype
    assert_close(out.float(), plain_packed_attention(given), **TOLERANCE[dtype])


def test_a_row_of_equal_heads_has_the_bits_of_dense_attention_whatever_lies_beside_it():
    given = segments([[40, 40], [7, 3], [21, 21, 21, 21]], 4, head_dim=16)
    out = packed_attention(*given.arguments())
    for row, kv_heads, length, start in ((0, 2, 40, 0), (2, 4, 21, 2 * 43 + 10 + 6)):
        keys, values = (
            x[start : start + kv_heads * (length + 3)].view(1, kv_heads, length + 3, 16)[:, :, :length].clone()
            for x in (given.keys, given.values)
        )
        assert torch.equal(out[row], dense_attention(given.query[row : row + 1], keys, values, 0.3)[0])


@pytest.mark.parametrize("rows, heads", [([[9, 4], [1, 30]], 6), ([[9, 4], [3, 1, 30, 2]], 4), ([[5], [8]], 1)])
def test_torchs_kernel_is_given_sequences_of_its_documented_form(monkeypatch, rows, heads):
    """What it returns on a GPU is not shown here: a plain function of its documentation stands for it."""
    module = ModuleType("torch.nn.attention.varlen")
    module.varlen_attn = plain_varlen_attn
    monkeypatch.setitem(sys.modules, "torch.nn.attention.varlen", module)
    given = segments(rows, heads, head_dim=16)
    out = varlen.varlen_attention(*given.arguments())
    assert_close(out, plain_packed_attention(given), **TOLERANCE[torch.float32])


def test_torchs_kernel_takes_single_queries_of_half_precision(monkeypatch):
    monkeypatch.setattr(varlen, "_takes_lengths", lambda: True)
    query = torch.zeros(1, 4, 1, 128, dtype=torch.bfloat16)
    assert varlen.varlen_attends(query)
    assert not varlen.varlen_attends(query.float())
    assert not varlen.varlen_attends(query.expand(1, 4, 2, 128))
    assert not varlen.varlen_attends(query[..., :100]) and not varlen.varlen_attends(query.repeat(1, 1, 1, 3))
    monkeypatch.setattr(varlen, "_takes_lengths", lambda: False)
    assert not varlen.varlen_attends(query)


@pytest.mark.parametrize("t", [1, 4])
@pytest.mark.parametrize("sources", [[0, 1, 2, 3], [0, 0, 1, 1, 2, 3]], ids=["kv heads", "query heads and kv heads"])
def test_new_tokens_stand_behind_every_segment(sources, t):
    lengths = torch.randint(0, 9, (len(sources),), dtype=torch.int32)
    starts = torch.arange(0, 20 * len(sources) + 1, 20, dtype=torch.int32)
    stores = [torch.randn(20 * len(sources), 8) for _ in range(2)]
    before, counts = [store.clone() for store in stores], lengths.tolist()
    new = [torch.randn(2, t, 2, 8).transpose(1, 2) for _ in range(2)]
    packed_append(*stores, lengths, starts, torch.tensor(sources, dtype=torch.int32), *new)
    assert lengths.tolist() == [count + t for count in counts]
    for store, old, rows in zip(stores, before, new, strict=True):
        for s, (source, count) in enumerate(zip(sources, counts, strict=True)):
            place = 20 * s + count
            assert torch.equal(store[place : place + t], rows.flatten(0, 1)[source])
            old[place : place + t] = store[place : place + t]
        assert torch.equal(store, old), "nothing else was written"


@pytest.mark.parametrize(
    "case, takes",
    [
        ({"rows": [[9, 9], [7, 30]], "heads": 6}, True),
        ({"rows": [[9, 9, 9, 9]], "heads": 4}, False),  # one query head a segment
        ({"rows": [[9, 9], [7, 7, 7, 7]], "heads": 4}, False),  # groups of two and of one
        ({"rows": [[9, 9]], "heads": 4, "q": 5}, False),
        ({"rows": [[17, 30]], "heads": 6, "masked": [[10, 30]]}, False),
    ],
)
def test_torchs_kernel_comes_first_only_where_it_splits_keys(case, takes, monkeypatch):
    monkeypatch.setattr(varlen, "_takes_lengths", lambda: True)
    assert _torch_has_a_kernel(*segments(**case, head_dim=16, dtype=torch.bfloat16).arguments()) == takes
