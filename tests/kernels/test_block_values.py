"""Numbers behind block formats' codes in Triton: the reference's bits, one launch, no spilled registers."""

import pytest
import torch

from kvbench.ops.block_values import block_values
from kvbench.ops.formats import GGML, MICROSCALING
from kvbench.ops.operator import LAUNCHES, use_kernels
from tests.support.kernels import ARCHITECTURES, compiled, interpreted, record_launches, resources
from tests.support.needs import need, packages

pytestmark = pytest.mark.kernels
need("triton", packages("triton", "triton"))

from kvbench.ops.kernels import block_values as kernels  # noqa: E402

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


@interpreted
@pytest.mark.parametrize("blocks", [0, 1, 31, 300])
@pytest.mark.parametrize("name", FORMATS)
def test_any_bytes_are_restored_bit_for_bit(name, blocks):
    agrees(FORMATS[name], blocks)


@interpreted
def test_a_call_launches_what_the_operator_says(monkeypatch):
    launched = record_launches(monkeypatch, kernels, "block_values_kernel")
    agrees(FORMATS["q5_1"], 40)
    assert len(launched) == LAUNCHES["block_values"]


@compiled
@pytest.mark.parametrize("sm", ARCHITECTURES)
@pytest.mark.parametrize("name", FORMATS)
def test_nothing_spills(name, sm):
    form = FORMATS[name]
    signature = dict.fromkeys(("levels", "scale", "minimum", "out"), "*fp32") | {"stored": "*u8", "blocks": "i32"}
    constants = {"HEADER": form.header, "BYTES": form.block_bytes, "BITS": form.bits, "WIDTH": form.block}
    constants["ROWS"] = kernels.NUMBERS // form.block
    used = resources(kernels.block_values_kernel, signature, constants, sm, enable_fp_fusion=False)
    assert used["spills"] == 0, used
