"""Codes of 2, 3 and 4 bits: packed without gaps, read through a table."""

import pytest
import torch

from kvbench.ops.small_codes import code_table, pack_codes, unpack_codes


@pytest.mark.parametrize("bits", [2, 3, 4])
def test_codes_fill_every_bit_and_are_read_through_a_table(bits):
    codes = torch.randint(0, 2**bits, (2, 5, 40), dtype=torch.int32)
    packed = pack_codes(codes, bits).to(torch.uint8)
    assert packed.shape == (2, 5, 40 * bits // 8)
    levels = tuple(float(x) for x in torch.randn(2**bits))
    table = code_table(levels, bits, torch.device("cpu"))
    assert torch.equal(unpack_codes(packed, bits, table), torch.tensor(levels)[codes.long()])


def test_the_first_code_is_in_the_lowest_bits():
    assert pack_codes(torch.tensor([1, 2]), 4).tolist() == [0x21]
    assert pack_codes(torch.tensor([1, 2, 3, 0]), 2).tolist() == [0b00111001]
    three = pack_codes(torch.tensor([1, 0, 0, 0, 0, 0, 0, 7]), 3).to(torch.uint8)
    assert three.tolist() == [1, 0, 0b11100000]
