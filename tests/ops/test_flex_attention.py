"""flex_attention with soft caps and sinks gives what the reference gives, in blocks that leave nothing out."""

import pytest
import torch
from torch._dynamo.exc import TorchDynamoException
from torch.nn.attention.flex_attention import create_block_mask

from kvbench.ops import attention, flex_attention
from kvbench.ops.attention import dense_attention, sliding_attention
from kvbench.ops.flex_attention import BLOCK, causal_blocks, flexible_attention
from kvbench.ops.softmax import Softmax

SIZES = [(200, 200), (70, 300), (5, 129), (256, 256)]  # queries, keys


def tensors(q, length, dtype=torch.float32):
    generator = torch.Generator().manual_seed(q)
    sizes = ((6, q), (2, length), (2, length))
    return [torch.randn(1, heads, n, 16, generator=generator).to(dtype) for heads, n in sizes]


@pytest.mark.parametrize("window", [None, 1, 60, 150])
@pytest.mark.parametrize("q, length", SIZES)
def test_blocks_are_those_of_the_mask_itself(q, length, window):
    made = causal_blocks(q, length, window, torch.device("cpu"))
    expected = create_block_mask(made.mask_mod, None, None, q, length, device="cpu", BLOCK_SIZE=BLOCK)
    assert made.shape == expected.shape and made.to_dense().equal(expected.to_dense())
    assert made.full_kv_num_blocks.equal(expected.full_kv_num_blocks)
    rows = torch.arange(q)[:, None] + length - q
    seen = (torch.arange(length) <= rows) & (torch.arange(length) > rows - (window or length))
    assert made.mask_mod(0, 0, torch.arange(q)[:, None], torch.arange(length)).equal(seen)


@pytest.mark.filterwarnings("ignore")  # it is not compiled here, and torch says so
@pytest.mark.heavy
@pytest.mark.parametrize("bent", [{"softcap": 3.0}, {"sinks": True}, {"softcap": 2.0, "sinks": True}], ids=str)
@pytest.mark.parametrize("window", [None, 60])
def test_it_attends_as_the_reference(bent, window):
    sinks = torch.linspace(-2, 3, 6) if "sinks" in bent else None
    scaling = Softmax(0.5, bent.get("softcap"), sinks)
    for q, length in SIZES[:2]:
        given = tensors(q, length)
        expected = (
            dense_attention(*given, scaling) if window is None else sliding_attention(*given, scaling, window=window)
        )
        torch.testing.assert_close(flexible_attention(*given, scaling, window), expected, atol=2e-6, rtol=2e-5)


def test_prompts_of_a_gpu_go_through_it_and_single_tokens_do_not(monkeypatch):
    taken = []
    monkeypatch.setattr(attention, "flexible", lambda query: query.shape[2] > 1)
    monkeypatch.setattr(attention, "flexible_attention", lambda *args: taken.append(args[4:]) or args[0])
    scaling = Softmax(0.5, 3.0)
    dense_attention(*tensors(9, 30), scaling)
    sliding_attention(*tensors(9, 30), scaling, 7)
    dense_attention(*tensors(1, 30), scaling)
    sliding_attention(*tensors(1, 30), scaling, 7)
    assert taken == [(), (7,)]


def test_where_it_does_not_compile_the_reference_computes_from_then_on(monkeypatch):
    def compute(*args, **options):
        raise TorchDynamoException("no compiler")

    monkeypatch.setattr(flex_attention, "attend", lambda device: compute)
    monkeypatch.setattr(flex_attention, "failures", [])
    monkeypatch.setattr(attention, "flexible", lambda query: not flex_attention.failures)
    given, scaling = tensors(9, 30), Softmax(0.5, 3.0)
    with pytest.warns(UserWarning, match="flex_attention does not compile here, a slower reference .*: no compiler"):
        out = dense_attention(*given, scaling)
    assert out.equal(dense_attention(*given, scaling)) and len(flex_attention.failures) == 1
