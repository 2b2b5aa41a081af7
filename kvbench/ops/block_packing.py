"""Codes of 4, 5, 6 or 8 bits packed into bytes."""

import torch
from torch import Tensor

from kvbench.ops.multiples import multiples


def code_bytes(count: int, bits: int) -> int:
    """Bytes of `count` packed codes."""
    return count * bits // 8


def pack(codes: Tensor, bits: int) -> Tensor:
    """Codes below 2^bits, int32 [..., block], as uint8 [..., block · bits / 8].

    4 bits: byte i has code i in its lower half and code block / 2 + i in its upper half. 5 bits (a block of 32): a word
    with the highest bit of code i at place i, its lowest byte first, then the other bits as above. 6 bits: codes one
    after the other in groups of three bytes, the lowest bits first. The layouts of 4 and 5 bits are ggml's.
    """
    if bits == 8:
        return codes.to(torch.uint8)
    if bits == 4:
        low, high = codes.chunk(2, dim=-1)
        return (low | high << 4).to(torch.uint8)
    if bits == 5:
        highest = (codes >> 4).unflatten(-1, (-1, 8)) << multiples(8, 1, codes.device)
        return torch.cat([highest.sum(dim=-1).to(torch.uint8), pack(codes & 15, 4)], dim=-1)
    words = (codes.unflatten(-1, (-1, 4)) << multiples(4, 6, codes.device)).sum(dim=-1)
    return (words[..., None] >> multiples(3, 8, codes.device) & 255).flatten(-2).to(torch.uint8)


def unpack(packed: Tensor, bits: int) -> Tensor:
    """The inverse of `pack`: int32 [..., block]."""
    packed = packed.int()
    if bits == 8:
        return packed
    if bits == 4:
        return torch.cat([packed & 15, packed >> 4], dim=-1)
    if bits == 5:
        highest = (packed[..., :4, None] >> multiples(8, 1, packed.device) & 1).flatten(-2)
        return unpack(packed[..., 4:], 4) | highest << 4
    words = (packed.unflatten(-1, (-1, 3)) << multiples(3, 8, packed.device)).sum(dim=-1, dtype=torch.int32)
    return (words[..., None] >> multiples(4, 6, packed.device) & 63).flatten(-2)
