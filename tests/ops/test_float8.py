"""Float8 numbers: rounding, saturation, and the table that reads them back."""

import torch

from kvbench.ops.float8 import E4M3, LARGEST, from_float8, to_float8

EVERY = torch.arange(256, dtype=torch.uint8).view(E4M3)


def test_every_code_is_read_as_torch_reads_it():
    found = from_float8(EVERY[None])
    assert torch.equal(found.nan_to_num(nan=-1), EVERY.float()[None].nan_to_num(nan=-1))


def test_every_number_of_the_format_comes_back_exactly():
    numbers = EVERY[~EVERY.float().isnan()].float()
    assert torch.equal(from_float8(to_float8(numbers)), numbers)


def test_what_lies_beyond_the_range_becomes_its_end():
    x = torch.tensor([448.0, 449.0, 1e30, float("inf"), -465.0, float("-inf")])
    assert from_float8(to_float8(x)).tolist() == [LARGEST] * 4 + [-LARGEST] * 2


def test_the_error_is_a_sixteenth_of_a_number_or_half_the_smallest_step():
    x = torch.cat([torch.randn(4000) * scale for scale in (1e-3, 0.02, 1, 100)]).clamp(-LARGEST, LARGEST)
    error = (from_float8(to_float8(x)) - x).abs()
    assert (error <= (x.abs() / 16).clamp(min=2**-10)).all()


def test_numbers_are_read_from_a_part_of_a_larger_tensor():
    codes = to_float8(torch.randn(3, 20, 6))
    assert torch.equal(from_float8(codes[:, 5:11]), codes[:, 5:11].float())
