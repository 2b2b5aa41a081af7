"""Triton: keys before RoPE, one launch."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kvbench.ops.kernels.registers import most_registers

ROWS = 16  # rows of one program


@triton.jit
def turn_back_kernel(
    x: tl.tensor, positions: tl.tensor, turns: tl.tensor, order: tl.tensor, out: tl.tensor, rows: tl.tensor,
    D: tl.constexpr, PAIRS: tl.constexpr, ROWS: tl.constexpr, HALF: tl.constexpr,
) -> None:  # fmt: skip
    """One program rotates ROWS rows back. The channels after the pairs, an even number, do not change."""
    row = tl.program_id(0).to(tl.int64) * ROWS + tl.arange(0, ROWS)[:, None]
    half = tl.arange(0, HALF)[None, :]
    first = tl.load(order + 2 * half, mask=half < D // 2, other=0)
    second = tl.load(order + 2 * half + 1, mask=half < D // 2, other=0)
    inside = (row < rows) & (half < D // 2)
    turned = (row < rows) & (half < PAIRS)
    a = tl.load(x + row * D + first, mask=inside, other=0.0).to(tl.float32)
    b = tl.load(x + row * D + second, mask=inside, other=0.0).to(tl.float32)
    turn = turns + (tl.load(positions + row, mask=row < rows, other=0) * PAIRS + half) * 2
    cosine = tl.load(turn, mask=turned, other=1.0)
    sine = tl.load(turn + 1, mask=turned, other=0.0)
    tl.store(out + row * D + first, a * cosine + b * sine, mask=inside)
    tl.store(out + row * D + second, b * cosine - a * sine, mask=inside)


def turn_back(x: Tensor, positions: Tensor, turns: Tensor, order: Tensor) -> Tensor:
    """See `kvbench.methods.spindlekv.ops.turn_back`."""
    x, positions, turns = x.contiguous(), positions.contiguous(), turns.contiguous()
    rows, d = x.shape
    out = x.new_empty(rows, d, dtype=torch.float32)
    if rows:
        turn_back_kernel[(triton.cdiv(rows, ROWS),)](
            x, positions, turns, order, out, rows, D=d, PAIRS=turns.shape[1], ROWS=ROWS,
            HALF=triton.next_power_of_2(max(d // 2, 1)), enable_fp_fusion=False, **most_registers(168),
        )  # fmt: skip
    return out
