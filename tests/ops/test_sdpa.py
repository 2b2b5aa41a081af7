"""The backend of a prompt's attention has a name, and grouped heads get one without n × n weights."""

import pytest
import torch
from torch.nn.functional import scaled_dot_product_attention

from kvbench.ops import sdpa
from kvbench.ops.attention import dense_attention


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
    monkeypatch.setattr("kvbench.ops.attention.ungrouped", sdpa.as_rows)
    torch.testing.assert_close(dense_attention(query, keys, values, 0.25), expected)


def test_on_a_cpu_tensors_stay_as_they_are():
    given = tensors()
    assert all(a is b for a, b in zip(sdpa.ungrouped(*given), given, strict=True))
