"""Quantising and restoring in Triton: the reference's codes bit for bit."""

import pytest
import torch

from kvbench.ops.quantise import CHANNELS, TOKENS
from kvbench.ops.quantise import dequantise as plain_dequantise
from kvbench.ops.quantise import quantise as plain_quantise
from tests.support.kernels import interpreted
from tests.support.needs import need, packages

pytestmark = [pytest.mark.kernels, interpreted]
need("triton", packages("triton", "triton"))

from kvbench.ops.kernels import dequantise as inverse  # noqa: E402
from kvbench.ops.kernels import quantise as kernels  # noqa: E402

SHAPES = [  # heads, tokens, head_dim, bits, group
    (2, 64, 64, 4, 32),
    (1, 32, 80, 2, 16),
    (3, 24, 96, 8, 12),
    (1, 32, 256, 2, 32),
    (2, 0, 64, 4, 32),
]


@pytest.mark.parametrize("axis", [TOKENS, CHANNELS])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16], ids=str)
@pytest.mark.parametrize("heads, tokens, head_dim, bits, group", SHAPES)
def test_codes_scales_and_minima_are_the_references(heads, tokens, head_dim, bits, group, dtype, axis):
    x = torch.randn(heads, tokens + 5, head_dim, generator=torch.Generator().manual_seed(tokens)).to(dtype)
    x = x[:, 3 : tokens + 3]  # no head follows the other
    if tokens:
        x[0, :group] = 0.5  # a constant group
    stored = kernels.quantise(x, bits, group, axis)
    for mine, expected in zip(stored, plain_quantise(x, bits, group, axis), strict=True):
        assert mine.shape == expected.shape and mine.dtype == expected.dtype
        # the interpreter cuts numbers off to bfloat16, GPUs and the reference round them: other scales, other codes
        assert torch.equal(mine, expected) or dtype == torch.bfloat16
    restored, expected = (f(*stored, bits, group, axis) for f in (inverse.dequantise, plain_dequantise))
    assert restored.shape == x.shape
    # nor does it fuse the product and the sum
    torch.testing.assert_close(restored, expected, rtol=2 * torch.finfo(dtype).eps, atol=2 * torch.finfo(dtype).eps)
    step = 2 * (x.float().max() - x.float().min()).item() / 2**bits if tokens else 0
    torch.testing.assert_close(restored.float(), x.float(), atol=step, rtol=0)
