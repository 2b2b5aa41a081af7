"""A prompt's attention with its log-sum-exps: those of the logits, from the kernel that torch would choose."""

from itertools import pairwise

import pytest
import torch

from kvbench.ops import log_sums
from kvbench.ops.attention import dense_attention
from kvbench.ops.column_sums import column_sums
from kvbench.ops.sdpa import as_rows
from kvbench.ops.softmax import Softmax
from kvbench.prefill import FullPrefill, Needs
from kvbench.prefill.chunked import ChunkedPrefill
from tests.reference.dense_probabilities import dense_logits
from tests.support.fake_devices import FakeDevices, device_of, place, stamped
from tests.support.tiny import prompt, tiny_model

GPU = torch.device("cuda", 0)


def tensors(q=24, n=24, head_dim=16, dtype=torch.float32):
    generator = torch.Generator().manual_seed(0)
    shapes = [(1, 6, q, head_dim), (1, 2, n, head_dim), (1, 2, n, head_dim)]
    return [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]


@pytest.fixture
def flash_takes_blocks(monkeypatch):
    """torch's own answer, without a GPU, is that no kernel of one takes these tensors."""
    asked = []
    monkeypatch.setattr(log_sums, "can_use_flash_attention", lambda params: asked.append(params) or True)
    return asked


def on_gpu(query, keys, values, scaling=0.25):
    with FakeDevices():
        out, lse = log_sums.attention_and_log_sums(*stamped([query, keys, values], GPU), scaling)
        assert device_of(out) == GPU
    return out, lse


@pytest.mark.parametrize("q, dtype", [(24, torch.bfloat16), (5, torch.bfloat16), (5, torch.float32)])
def test_they_are_those_of_the_logits_and_attention_is_as_ever(q, dtype, flash_takes_blocks):
    given = tensors(q, dtype=dtype)
    expected = dense_attention(*given, 0.25)
    out, lse = on_gpu(*given)
    torch.testing.assert_close(out, expected)
    query, keys, _ = (x[0] for x in given)
    hidden = torch.ones(q, 24, dtype=torch.bool).triu(24 - q + 1)
    dense = dense_logits(query, keys, 0.25).masked_fill(hidden, float("-inf")).logsumexp(-1)
    assert lse.dtype == torch.float32
    torch.testing.assert_close(lse[0].double(), dense, atol=1e-2 if dtype == torch.bfloat16 else 1e-5, rtol=1e-5)
    torch.testing.assert_close(lse[0], column_sums(query, keys, 0.25, 24 - q)[1], atol=1e-2, rtol=1e-5)
    assert len(flash_takes_blocks) == (q < 24)


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("q", [24, 5])
def test_a_cpu_has_the_attention_of_always_and_the_log_sums_of_its_logits(q, dtype):
    given = tensors(q, dtype=dtype)
    out, lse = log_sums.attention_and_log_sums(*given, 0.25)
    assert torch.equal(out, dense_attention(*given, 0.25))
    query, keys, _ = (x[0] for x in given)
    hidden = torch.ones(q, 24, dtype=torch.bool).triu(24 - q + 1)
    dense = dense_logits(query, keys, 0.25).masked_fill(hidden, float("-inf")).logsumexp(-1)
    assert lse.dtype == torch.float32
    torch.testing.assert_close(lse[0].double(), dense, atol=1e-2 if dtype == torch.bfloat16 else 1e-5, rtol=1e-5)


@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("cuts", [(), (9,), (9, 10)])
def test_attention_in_parts_is_that_of_the_whole(cuts, dtype):
    """Five queries behind 19 other keys, of which any number are in parts of their own."""
    query, keys, values = tensors(5, dtype=dtype)
    edges = [0, *cuts, 19, 24]
    parts = [(keys[:, :, a:b], values[:, :, a:b]) for a, b in pairwise(edges)]
    out, sums = log_sums.attention_in_parts(query, parts, 0.25)
    bound = {torch.float64: 1e-12, torch.float32: 1e-6, torch.bfloat16: 2e-2}[dtype]
    assert out.dtype == dtype
    torch.testing.assert_close(out, dense_attention(query, keys, values, 0.25), atol=bound, rtol=bound)
    whole = log_sums.attention_and_log_sums(query, keys, values, 0.25)[1]
    torch.testing.assert_close(torch.stack(sums).logsumexp(dim=0).float(), whole, atol=1e-5, rtol=1e-5)


def test_a_soft_cap_has_no_parts():
    query, keys, values = tensors()
    assert log_sums.attention_in_parts(query, [(keys, values)], Softmax(0.25, softcap=30.0)) is None


@pytest.mark.parametrize("case", ["math on a CPU", "one query", "bent", "padded heads", "math", "no flash for a block"])
def test_where_no_kernel_returns_them_attention_is_plain(case, monkeypatch):
    given, scaling = tensors(), 0.25
    if case == "one query":
        given = tensors(q=1)
    if case == "bent":
        scaling = Softmax(0.25, softcap=30.0)
    if case == "padded heads":
        given = tensors(head_dim=12)
    if "math" in case:
        monkeypatch.setattr(torch, "_fused_sdp_choice", lambda *_, **__: 0)
    if case == "no flash for a block":
        given = tensors(q=5)
        monkeypatch.setattr(log_sums, "can_use_flash_attention", lambda params: False)
    expected = dense_attention(*given, scaling)
    if case == "bent":  # flex_attention is another test's
        monkeypatch.setattr(log_sums, "dense_attention", lambda *_: stamped(expected, GPU))
    if case == "math on a CPU":
        out, lse = log_sums.attention_and_log_sums(*given, scaling)
    else:
        out, lse = on_gpu(*given, scaling)
    assert lse is None
    torch.testing.assert_close(out.as_subclass(torch.Tensor), expected)


@pytest.mark.parametrize("name", log_sums.KERNELS)
@pytest.mark.parametrize("rows", [False, True])
def test_each_kernel_of_a_gpu_takes_the_call_and_returns_that_shape(name, rows, monkeypatch):
    """torch's own shapes for tensors without memory; one pads queries to 32, one has a dimension more."""

    class Shapes(FakeDevices):
        def call(self, func, args, kwargs, device):
            called.append(func)
            return func(*args, **kwargs)

    called: list = []
    monkeypatch.setattr(log_sums, "backend", lambda *_: name)
    monkeypatch.setattr(log_sums, "ungrouped", as_rows if rows or name == "efficient_attention" else lambda *x: x)
    given = [torch.empty(1, heads, 50, 64, device="meta", dtype=torch.bfloat16) for heads in (6, 2, 2)]
    with Shapes():
        out, lse = log_sums.attention_and_log_sums(*stamped(given, GPU), 0.1)
    assert getattr(torch.ops.aten, f"_scaled_dot_product_{name}").default in called
    assert out.shape == given[0].shape and out.dtype == torch.bfloat16
    assert lse.shape == (1, 6, 50) and lse.dtype == torch.float32


@pytest.mark.parametrize("plan", [FullPrefill(), ChunkedPrefill(37)])
def test_column_sums_of_a_prefill_on_a_gpu_take_them(plan, flash_takes_blocks):
    given = []

    class Watched(FakeDevices):
        def call(self, func, args, kwargs, device):
            if getattr(func, "namespace", None) == "kvbench" and "add_column_sums" in func.name():
                given.append(args[7] is not None)
            return super().call(func, args, kwargs, device)

    needs = Needs(column_sums=True)
    expected = plan.run(tiny_model(), prompt(90), needs)
    with Watched():
        state = plan.run(place(tiny_model(), gpus=1), prompt(90), needs)
    assert given == [True] * 3 * (1 if plan == FullPrefill() else 3)  # of 3 layers
    for a, b in zip(state.layers, expected.layers, strict=True):
        torch.testing.assert_close(a.column_sums.as_subclass(torch.Tensor), b.column_sums, rtol=1e-4, atol=1e-4)
        torch.testing.assert_close(a.lse.as_subclass(torch.Tensor), b.lse, rtol=1e-4, atol=1e-4)
