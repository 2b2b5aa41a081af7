"""Block formats: bytes against those of the `gguf` package, levels against the specification, both implementations."""

import gguf
import numpy as np
import pytest
import torch
from gguf import GGMLQuantizationType
from torch.testing import assert_close

from kvbench.ops.block_packing import pack, unpack
from kvbench.ops.formats import GGML, MICROSCALING
from kvbench.ops.formats.minifloat import E2M1, E2M3, E3M2, E4M3, E5M2

FORMATS = GGML | MICROSCALING
DTYPES = (torch.float32, torch.float16, torch.bfloat16)
BITS = {"q8_0": 8.5, "q5_1": 6, "q5_0": 5.5, "q4_1": 5, "q4_0": 4.5, "iq4_nl": 4.5, "nvfp4": 4.5, "mxfp4": 4.25} | {
    **dict.fromkeys(["mxfp6_e2m3", "mxfp6_e3m2"], 6.25),
    **dict.fromkeys(["mxfp8_e4m3", "mxfp8_e5m2"], 8.25),
}


def rows(dtype=torch.float32, count=300):
    """Rows of many sizes, with blocks of zeros, of one number, and with a largest magnitude of both signs."""
    x = torch.randn(count, 128, generator=torch.Generator().manual_seed(0)) * torch.logspace(-3, 2, count)[:, None]
    x[3], x[4, :32], x[5, 7], x[6, 9] = 0, 1, -x[5].abs().max(), x[6].abs().max()
    x[7, 0], x[7, 1] = 50.0, -50.0
    return x.to(dtype)


def by_gguf(x, name):
    return torch.from_numpy(gguf.quants.quantize(x.float().numpy(), GGMLQuantizationType[name.upper()]))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", sorted(GGML.keys() - {"iq4_nl"}))
def test_the_bytes_are_those_of_gguf(name, dtype):
    x = rows(dtype)
    assert torch.equal(GGML[name].encode(x), by_gguf(x, name))


@pytest.mark.parametrize("dtype", DTYPES, ids=str)
@pytest.mark.parametrize("name", [*GGML, "mxfp4"])
def test_the_numbers_read_are_those_of_gguf(name, dtype):
    stored = FORMATS[name].encode(rows(dtype))
    numbers = gguf.quants.dequantize(stored.numpy(), GGMLQuantizationType[name.upper()])
    assert torch.equal(FORMATS[name].decode(stored), torch.from_numpy(numbers))


def test_nvfp4_reads_as_gguf_does():
    """gguf has the scales of four blocks before their codes."""
    stored = FORMATS["nvfp4"].encode(rows()).view(-1, 4, 9)
    together = torch.cat([stored[:, :, 0], stored[:, :, 1:].flatten(1)], dim=1)
    numbers = gguf.quants.dequantize(together.numpy(), GGMLQuantizationType.NVFP4)
    assert torch.equal(FORMATS["nvfp4"].decode(stored.flatten()), torch.from_numpy(numbers).flatten())


def test_mxfp4_differs_from_gguf_at_ties_and_in_the_sign_of_zero_alone():
    x = rows(torch.bfloat16)  # many ties
    mine, theirs = FORMATS["mxfp4"].encode(x), by_gguf(x, "mxfp4")
    assert torch.equal(mine.view(-1, 17)[:, 0], theirs.view(-1, 17)[:, 0])  # scales
    a, b = FORMATS["mxfp4"].decode(mine), FORMATS["mxfp4"].decode(theirs)
    assert (a != b).any() and torch.equal((a - x.float()).abs(), (b - x.float()).abs())


@pytest.mark.parametrize("name", FORMATS)
def test_bits_per_element_are_those_stored(name):
    assert FORMATS[name].encode(rows()).shape[1] * 8 / 128 == FORMATS[name].bits_per_element == BITS[name]


@pytest.mark.parametrize("name", FORMATS)
def test_a_part_of_the_rows_reads_as_in_all(name):
    stored = FORMATS[name].encode(rows().view(3, 100, 128))
    assert torch.equal(FORMATS[name].decode(stored[:, 20:33]), FORMATS[name].decode(stored)[:, 20:33])


@pytest.mark.parametrize("bits", [4, 5, 6, 8])
def test_packed_codes_unpack(bits):
    codes = torch.randint(0, 2**bits, (7, 32), dtype=torch.int32, generator=torch.Generator().manual_seed(bits))
    packed = pack(codes, bits)
    assert packed.shape == (7, 4 * bits) and torch.equal(unpack(packed, bits), codes)


def test_iq4_nl_takes_the_nearest_level_and_the_scale_of_the_least_weighted_squared_error():
    x = rows().double().view(-1, 32)
    stored = GGML["iq4_nl"].encode(x.float())
    levels = torch.tensor(GGML["iq4_nl"].levels, dtype=torch.float64)
    codes, scale = unpack(stored[:, 2:], 4), stored[:, :2].contiguous().view(torch.float16).double()
    largest = x.gather(1, x.abs().argmax(1, keepdim=True))
    steps = x / torch.where(largest == 0, 1, largest / -127)
    gaps = (steps[..., None] - levels).abs().sort(-1).values
    clear = gaps[..., 1] - gaps[..., 0] > 1e-4  # beyond rounding
    nearest = (steps[..., None] - levels).abs().argmin(-1)
    some = (largest != 0).expand_as(clear)
    assert clear.float().mean() > 0.99 and torch.equal(codes[clear & some], nearest[clear & some].int())
    q = levels[codes]
    best = (x**3 * q).sum(1) / (x**2 * q**2).sum(1).clamp(min=1e-30)
    normal = best.abs() > 2**-14
    assert normal.any() and assert_close(scale[normal, 0], best[normal], rtol=2**-10, atol=0) is None


@pytest.mark.parametrize(
    ("element", "largest", "smallest", "top"),
    [(E2M1, 6, 0.5, 2), (E2M3, 7.5, 0.125, 2), (E3M2, 28, 0.0625, 4), (E4M3, 448, 2**-9, 8), (E5M2, 57344, 2**-16, 15)],
)
def test_elements_have_the_range_of_the_specification(element, largest, smallest, top):
    assert (element.largest, element.levels[1], element.top) == (largest, smallest, top)


@pytest.mark.parametrize("element", [E2M1, E2M3, E3M2, E4M3, E5M2])
def test_elements_are_the_nearest_level_and_half_way_the_even_code(element):
    positive = torch.tensor(element.levels[: 2 ** (element.bits - 1) - element.special], dtype=torch.float64)
    between = (positive[:-1] + positive[1:]) / 2
    x = torch.cat([positive, between, between * (1 - 1e-6), between * (1 + 1e-6), positive[-1:] * 100]).float()
    number = torch.arange(len(positive))
    low, high = number[:-1], number[1:]
    expected = torch.cat([number, torch.where(low % 2 == 0, low, high), low, high, number[-1:]])
    assert torch.equal(element.codes(x), expected.int())
    assert torch.equal(element.codes(-x), expected.int() + 2 ** (element.bits - 1))


@pytest.mark.parametrize(("element", "dtype"), [(E4M3, torch.float8_e4m3fn), (E5M2, torch.float8_e5m2)])
def test_eight_bits_are_those_of_torch(element, dtype):
    x = (torch.randn(20_000, generator=torch.Generator().manual_seed(1)) * 30).exp2().clamp(max=element.largest)
    assert torch.equal(element.codes(x).to(torch.uint8), x.to(dtype).view(torch.uint8))


@pytest.mark.parametrize("name", sorted(MICROSCALING.keys() - {"nvfp4"}))
def test_a_block_of_mx_has_the_largest_power_of_two_below_its_largest_number(name):
    """Section 6.3: the shared exponent is floor(log2(max)) - emax."""
    form = MICROSCALING[name]
    for largest in (1.0, 1.999, 2.0, 3.5, 1e-3, 7e4, np.nextafter(np.float32(8), np.float32(0)).item()):
        block = torch.zeros(1, 32)
        block[0, 5] = -largest
        assert form.encode(block)[0, 0].item() - 127 == np.floor(np.log2(np.float64(largest))) - form.element.top


@pytest.mark.parametrize("name", FORMATS)
def test_zeros_and_numbers_that_are_tiny_or_huge_stay_finite(name):
    for size in (0.0, 1e-30, 1e-8, 1e30):
        decoded = FORMATS[name].decode(FORMATS[name].encode(torch.full((2, 64), size)))
        assert decoded.isfinite().all() and (size or not decoded.any())
