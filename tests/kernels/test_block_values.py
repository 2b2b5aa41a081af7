"""Numbers behind block formats' codes in Triton: the reference's bits."""

import pytest
import torch

from kvbench.ops.block_values import block_values
from kvbench.ops.formats import GGML, MICROSCALING
from kvbench.ops.operator import use_kernels
from tests.support.kernels import interpreted
from tests.support.needs import need, packages

pytestmark = [pytest.mark.kernels, interpreted]
need("triton", packages("triton", "triton"))


FORMATS = GGML | MICROSCALING


def agrees(form, blocks):
    """Of any bytes: every code of a format, at every place."""
    generator = torch.Generator().manual_seed(blocks)
    stored = torch.randint(256, (blocks, form.block_bytes), generator=generator, dtype=torch.uint8)
    scale, minimum = torch.randn(2, blocks, generator=generator)
    call = stored, form.header, form.bits, torch.tensor(form.levels).nan_to_num(), scale, minimum
    with use_kernels("torch"):
        expected = block_values(*call)
    with use_kernels("triton"):
        assert block_values(*call).equal(expected)


@pytest.mark.parametrize("blocks", [0, 1, 31, 300])
@pytest.mark.parametrize("name", FORMATS)
def test_any_bytes_are_restored_bit_for_bit(name, blocks):
    agrees(FORMATS[name], blocks)
