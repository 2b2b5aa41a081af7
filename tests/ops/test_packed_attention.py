"""Attention over packed segments: every way of computing it gives what each head gives by itself."""

import math

import pytest
import torch
from torch.testing import assert_close

from kvbench.ops import operator
from kvbench.ops import varlen_attention as varlen
from kvbench.ops.attention import dense_attention
from kvbench.ops.packed_append import packed_append
from kvbench.ops.packed_attention import _torch_has_a_kernel, packed_attention
from kvbench.ops.padded_attention import padded_attention
from tests.reference.plain_packed import Segments, plain_packed_attention, segments
from tests.support.fake_devices import FakeDevices, stamped

GPU = torch.device("cuda", 0)
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
    return padded_attention(*given.arguments())


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


def on_gpu(given: Segments) -> tuple:
    """The arguments of packed attention, of a fake GPU."""
    return tuple(stamped(given.arguments(), GPU))


@pytest.mark.parametrize("rows, heads", [([[9, 4], [1, 30]], 6), ([[9, 4], [3, 1, 30, 2]], 4), ([[5], [8]], 1)])
def test_torchs_kernel_is_given_sequences_of_its_documented_form(rows, heads):
    """What it returns on a GPU is not shown here: a plain function of its documentation stands for it."""
    given = segments(rows, heads, head_dim=16)
    with FakeDevices():
        out = varlen.varlen_attention(*on_gpu(given)[:-1])
    assert_close(out, plain_packed_attention(given), **TOLERANCE[torch.float32])


def test_torchs_kernel_takes_single_queries_of_half_precision(monkeypatch):
    query, values = torch.zeros(1, 4, 1, 128, dtype=torch.bfloat16), torch.zeros(9, 128)
    with FakeDevices():
        stamped([query], GPU)
        assert varlen.varlen_attends(query, values)
        assert not varlen.varlen_attends(query.float(), values)
        assert not varlen.varlen_attends(query, values[:, :64])  # values of another width
        assert not varlen.varlen_attends(query.expand(1, 4, 2, 128), values)
        for other in (query[..., :100], query.repeat(1, 1, 1, 3)):
            assert not varlen.varlen_attends(other, torch.zeros(9, other.shape[3]))
        monkeypatch.setattr(varlen, "_takes_lengths", lambda: False)
        assert not varlen.varlen_attends(query, values)


def test_values_of_another_width_are_for_the_references_on_a_gpu(monkeypatch):
    """Kernels have one width for both: they would read and write beside the values."""

    def kernel(*_):
        raise AssertionError("a kernel was asked")

    given, narrow = segments([[9, 4], [1, 30]], 4, head_dim=16), slice(0, 8)
    expected = plain_packed_attention(given)[..., narrow]
    new = torch.ones(2, 2, 1, 16)
    monkeypatch.setattr(operator, "implementation", lambda *_: kernel)
    with FakeDevices():
        query, keys, values, *rest = on_gpu(given)
        values = stamped([given.values[:, narrow].contiguous()], GPU)[0]
        out = packed_attention(query, keys, values, *rest)
        with pytest.raises(AssertionError, match="a kernel was asked"):
            packed_attention(*on_gpu(given))
        starts = torch.arange(5, dtype=torch.int32) * 3
        stores = torch.zeros(12, 16), torch.zeros(12, 8), torch.zeros(4, dtype=torch.int32)
        packed_append(*stamped([*stores, starts, torch.arange(4), new, new[..., narrow].contiguous()], GPU))
    assert out.shape[-1] == 8
    assert_close(out, expected, **TOLERANCE[torch.float32])
    assert stores[1][::3].eq(1).all() and stores[1].sum() == 4 * 8


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16], ids=str)
def test_before_ampere_and_on_amd_torch_attends_without_its_kernel(monkeypatch, dtype):
    """There flash attention raises at the first token: for its capability, or for lengths below a sequence's places."""
    given = segments([[9, 9], [7, 30]], 6, head_dim=16, dtype=dtype)
    for capability, hip in (((7, 5), None), ((9, 4), "6.4")):
        monkeypatch.setattr(torch.version, "hip", hip)
        with FakeDevices(capability):
            out = packed_attention.__wrapped__(*on_gpu(given))  # the reference, which torch computes
        assert_close(out.float(), plain_packed_attention(given), **TOLERANCE[torch.bfloat16])


def blocks_of_the_kernels_choice(segments: int, longest: int, processors: int) -> int:
    """How many parts flash attention makes of each sequence if nobody says: the fewest that keep the multiprocessors
    within 15 % of as busy as they can be, for equally long sequences."""
    if segments >= 0.8 * 2 * processors:
        return 1
    most = min(128, 2 * processors, -(-longest // 128))
    busy = [segments * parts / (2 * processors) for parts in range(1, most + 1)]
    efficiency = [waves / math.ceil(waves) for waves in busy]
    return 1 + next(place for place, share in enumerate(efficiency) if share >= 0.85 * max(efficiency))


@pytest.mark.parametrize("rows", [1, 7, 12, 26, 27, 100])
@pytest.mark.parametrize("longest", [32_768, 131_072])
def test_a_long_sequence_beside_many_short_ones_is_read_by_all_multiprocessors(rows, longest):
    """Of Llama-3-8B on an H100: 8 KV heads, 132 multiprocessors."""
    assert 8 * varlen.splits(longest, 8, 132) >= 2 * 132
    chosen = 8 * blocks_of_the_kernels_choice(8 * rows, longest, 132)
    assert chosen < 132 or rows == 1, "what the kernel would choose by itself"


def test_few_keys_are_not_split_and_no_sequence_is_split_into_more_parts_than_the_kernel_takes():
    assert varlen.splits(100, 8, 132) == 1 and varlen.splits(1000, 8, 132) == 4
    assert varlen.splits(10**6, 1, 132) == 128


def test_the_ends_of_sequences_are_made_once_and_not_while_a_graph_is_recorded(monkeypatch):
    with FakeDevices():
        kept = varlen.sequence_ends(5, GPU)
        assert varlen.sequence_ends(5, GPU) is kept and kept.tolist() == [0, 1, 2, 3, 4, 5]
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: True)
        assert varlen.sequence_ends(5, GPU) is not kept
        recorded = varlen.sequence_ends(17, GPU)
        monkeypatch.setattr(torch.cuda, "is_current_stream_capturing", lambda: False)
        assert varlen.sequence_ends(17, GPU) is not recorded


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
def test_torchs_kernel_comes_first_only_where_it_splits_keys(case, takes):
    with FakeDevices():
        assert _torch_has_a_kernel(*on_gpu(segments(**case, head_dim=16, dtype=torch.bfloat16))) == takes
