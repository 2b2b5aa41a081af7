"""Triton: the numbers of packed codes of blocks, one launch."""

import torch
import triton
import triton.language as tl
from torch import Tensor

NUMBERS = 1024  # numbers per program


@triton.jit
def block_values_kernel(
    stored: tl.tensor, levels: tl.tensor, scale: tl.tensor, minimum: tl.tensor, out: tl.tensor, blocks: tl.tensor,
    HEADER: tl.constexpr, BYTES: tl.constexpr, BITS: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr,
) -> None:  # fmt: skip
    """A program restores ROWS blocks of WIDTH numbers; `kvbench.ops.block_packing` describes the layout of codes."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    inside = row < blocks
    channel = tl.arange(0, WIDTH)[None, :]
    codes = stored + row * BYTES + HEADER
    if BITS == 8:
        code = tl.load(codes + channel, mask=inside, other=0).to(tl.int32)
    elif BITS == 6:
        place = channel % 4 * 6  # place of a code's lowest bit in a group of three bytes
        at = codes + channel // 4 * 3 + place // 8
        low = tl.load(at, mask=inside, other=0).to(tl.int32)
        high = tl.load(at + 1, mask=inside & (place // 8 < 2), other=0).to(tl.int32)
        code = ((low | high << 8) >> place % 8) & 63
    else:
        half = codes + (4 if BITS == 5 else 0) + channel % (WIDTH // 2)
        code = (tl.load(half, mask=inside, other=0).to(tl.int32) >> channel // (WIDTH // 2) * 4) & 15
        if BITS == 5:
            highest = tl.load(codes + channel // 8, mask=inside, other=0).to(tl.int32) >> channel % 8
            code |= (highest & 1) << 4
    number = tl.load(levels + code) * tl.load(scale + row, mask=inside, other=0.0)
    tl.store(out + row * WIDTH + channel, number + tl.load(minimum + row, mask=inside, other=0.0), mask=inside)


def block_values(stored: Tensor, header: int, bits: int, levels: Tensor, scale: Tensor, minimum: Tensor) -> Tensor:
    """See `kvbench.ops.block_values`."""
    stored, levels, scale, minimum = (x.contiguous() for x in (stored, levels, scale, minimum))
    blocks, size = stored.shape
    width = (size - header) * 8 // bits
    out = torch.empty(blocks, width, device=stored.device)
    if blocks:
        rows = max(NUMBERS // width, 1)
        block_values_kernel[(triton.cdiv(blocks, rows),)](
            stored, levels, scale, minimum, out, blocks, HEADER=header, BYTES=size, BITS=bits, WIDTH=width, ROWS=rows,
            enable_fp_fusion=False,
        )  # fmt: skip
    return out
