"""torch's backends of attention have names; grouped heads get one without n × n weights, one token none of cuDNN."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from kvbench.ops import sdpa
from kvbench.ops.attention import dense_attention, sliding_attention
from tests.support.fake_devices import FakeDevices, stamped


def tensors(dtype=torch.float32, q=24, n=24, rows=1):
    generator = torch.Generator().manual_seed(0)
    return [
        torch.randn(rows, heads, length, 16, generator=generator).to(dtype)
        for heads, length in ((6, q), (2, n), (2, n))
    ]


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_backend_of_a_prompt_is_that_of_torchs_choice(dtype):
    assert sdpa.prompt_backend(6, 2, 16, dtype, "cpu") == "flash_attention"
    with torch.nn.attention.sdpa_kernel(torch.nn.attention.SDPBackend.MATH):
        assert sdpa.prompt_backend(6, 2, 16, dtype, "cpu") == sdpa.MATH == "math"


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("rows, q", [(1, 24), (3, 24), (1, 5)])
def test_kv_heads_as_rows_give_the_attention_of_grouped_heads_without_copies(dtype, rows, q):
    query, keys, values = tensors(dtype, q, rows=rows)
    spread = sdpa.as_rows(query, keys, values)
    assert [x.shape[:2] for x in spread] == [(2 * rows, 3)] * 3
    assert spread[1].untyped_storage().data_ptr() == keys.untyped_storage().data_ptr()
    mask = torch.ones(q, 24, dtype=torch.bool).tril(24 - q)
    out = scaled_dot_product_attention(*spread, attn_mask=mask, scale=0.25).reshape(query.shape)
    torch.testing.assert_close(out, dense_attention(query, keys, values, 0.25))


def test_attention_takes_that_form_where_only_math_is_left(monkeypatch):
    query, keys, values = tensors()
    expected = dense_attention(query, keys, values, 0.25)
    monkeypatch.setattr(sdpa, "ungrouped", lambda query, keys, values, mask: sdpa.as_rows(query, keys, values))
    torch.testing.assert_close(dense_attention(query, keys, values, 0.25), expected)


def test_on_a_cpu_tensors_stay_as_they_are():
    given = tensors()
    assert all(a is b for a, b in zip(sdpa.ungrouped(*given), given, strict=True))


@pytest.mark.parametrize("q", [1, 24])
def test_cudnn_computes_prompts_on_a_gpu_and_no_single_token(monkeypatch, q):
    enabled = []
    monkeypatch.setattr(torch, "_fused_sdp_choice", lambda *_, **__: enabled.append(sdpa_cudnn()) or 1)
    query, keys, values = tensors(torch.bfloat16, q)
    with FakeDevices():
        gpu = stamped([query, keys, values], torch.device("cuda", 0))
        sdpa.sdpa_backend(*gpu)
        dense_attention(*gpu, 0.25)  # a fake GPU refuses one query while cuDNN may compute it
    assert {*enabled} == {q > 1} and sdpa_cudnn()
    with pytest.raises(RuntimeError, match="plan it anew"), FakeDevices():
        scaled_dot_product_attention(*(x[:, :, -1:] for x in gpu), enable_gqa=True)


def sdpa_cudnn() -> bool:
    return torch.backends.cuda.cudnn_sdp_enabled()


def test_a_sliding_mask_on_a_gpu_has_no_grouped_heads():
    """Only math takes both."""

    class Watched(FakeDevices):
        def call(self, func, args, kwargs, device):
            if func == scaled_dot_product_attention:
                seen.append((kwargs["attn_mask"] is not None, args[0].shape[1] == args[1].shape[1]))
            return super().call(func, args, kwargs, device)

    seen: list[tuple[bool, bool]] = []
    given = tensors()
    expected = sliding_attention(*given, 0.25, window=7)
    with Watched():
        out = sliding_attention(*stamped(list(given), torch.device("cuda", 0)), 0.25, window=7)
    assert seen == [(True, True)]
    torch.testing.assert_close(out.as_subclass(torch.Tensor), expected)
