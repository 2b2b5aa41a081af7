"""Codes of 2, 3 or 4 bits, packed without gaps, and tables that unpack several at a time."""

from collections.abc import Sequence
from functools import lru_cache

import torch
from torch import Tensor

from kvbench.ops.multiples import multiples

# A row of the table is copied as one number of the same size, which is much faster on a CPU than copying floats.
_AS_ONE = {1: torch.float32, 2: torch.complex64, 4: torch.complex128}
PER_WORD = {2: 4, 3: 8, 4: 2}  # codes that fill whole bytes
LOOKED_UP = {2: 4, 3: 4, 4: 2}  # codes that are looked up together


def look_up(table: Tensor, codes: Tensor) -> Tensor:
    """The rows of table [entries, width] float32, width 1, 2 or 4, at int32 codes [..., m]: [..., m · width]."""
    entries = table.view(_AS_ONE[table.shape[1]])[:, 0]
    rows = entries.index_select(0, codes.flatten())
    return rows.view(torch.float32).view(*codes.shape[:-1], codes.shape[-1] * table.shape[1])


def pack_codes(codes: Tensor, bits: int) -> Tensor:
    """Codes below 2^bits, int32 [..., m], as bytes in the lowest eight bits of int32 [..., m · bits / 8].

    The first code is in the lowest bits of the first byte.
    """
    shifts = multiples(PER_WORD[bits], bits, codes.device)
    words = (codes.unflatten(-1, (-1, PER_WORD[bits])) << shifts).sum(dim=-1, dtype=torch.int32)
    if bits == 3:
        words = (words[..., None] >> multiples(3, 8, codes.device)).flatten(-2)
    return words


def unpack_codes(packed: Tensor, bits: int, table: Tensor) -> Tensor:
    """The levels of packed codes uint8 [..., m · bits / 8] in a `code_table`: float32 [..., m]."""
    words = packed.int()
    if bits == 3:  # two words of 12 bits in three bytes
        low, middle, high = words.unflatten(-1, (-1, 3)).unbind(dim=-1)
        words = torch.stack([low | (middle & 15) << 8, middle >> 4 | high << 4], dim=-1).flatten(-2)
    return look_up(table, words)


@lru_cache(maxsize=64)
def code_table(levels: Sequence[float], bits: int, device: torch.device) -> Tensor:
    """The levels (a tuple) of all codes that are looked up together, float32 [2^(bits · together), together]."""
    return torch.tensor(levels, dtype=torch.float32).to(device)[codes_together(bits, device)]


@lru_cache(maxsize=64)
def codes_together(bits: int, device: torch.device) -> Tensor:
    """The codes in each word of codes that are looked up together, [2^(bits · together), together]."""
    together = LOOKED_UP[bits]
    words = torch.arange(2 ** (bits * together))[:, None]
    return (words >> bits * torch.arange(together) & (2**bits - 1)).to(device)
