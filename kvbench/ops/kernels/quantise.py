"""Triton: quantisation in groups and its inverse, one launch each."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kvbench.ops.quantise import Quantised


@triton.jit
def quantise_kernel(
    x: tl.tensor, codes: tl.tensor, scales: tl.tensor, minima: tl.tensor, lanes: tl.tensor, head_stride: tl.tensor,
    step_stride: tl.tensor, lane_stride: tl.tensor, member_stride: tl.tensor, code_lane: tl.tensor,
    code_member: tl.tensor, BITS: tl.constexpr, BYTES: tl.constexpr, LANES: tl.constexpr, MEMBERS: tl.constexpr,
) -> None:  # fmt: skip
    """One program per step and head, with `lanes` groups of 8 / BITS · BYTES members.

    Along tokens a step is a group of tokens and a lane is a channel; along channels a step is a token and a lane is a
    group of channels.
    Steps are the first dimension of the grid, the only one that may exceed 65,535.
    """
    step, head, steps = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64), tl.num_programs(0)
    lane = tl.program_id(2) * LANES + tl.arange(0, LANES)
    member = tl.arange(0, MEMBERS)
    inside = (member < BYTES)[:, None] & (lane < lanes)
    at = x + head * head_stride + step * step_stride + member[:, None] * member_stride + lane * lane_stride
    low = tl.full([LANES], float("inf"), tl.float32)
    high = tl.full([LANES], -float("inf"), tl.float32)
    for plane in tl.static_range(8 // BITS):
        rows = at + plane * BYTES * member_stride
        low = tl.minimum(low, tl.min(tl.load(rows, mask=inside, other=float("inf")).to(tl.float32), 0))
        high = tl.maximum(high, tl.max(tl.load(rows, mask=inside, other=-float("inf")).to(tl.float32), 0))
    stored = tl.math.div_rn(tl.where(lane < lanes, high - low, 0.0), 2.0**BITS - 1).to(scales.dtype.element_ty)
    scale = stored.to(tl.float32)
    scale = tl.where(scale == 0, 1.0, scale)
    packed = tl.zeros([MEMBERS, LANES], tl.int32)
    for plane in tl.static_range(8 // BITS):
        value = tl.load(at + plane * BYTES * member_stride, mask=inside, other=0.0).to(tl.float32)
        code = tl.math.div_rn(value - low, tl.broadcast_to(scale[None, :], [MEMBERS, LANES]))
        code = (code + 12582912.0) - 12582912.0  # 1.5 · 2^23: rounds to the nearest integer, ties to even
        code = tl.minimum(tl.maximum(code, 0.0), 2.0**BITS - 1)
        packed |= tl.where(inside, code, 0.0).to(tl.int32) << plane * BITS
    place = (head * steps + step) * lanes
    tl.store(scales + place + lane, scale.to(scales.dtype.element_ty), mask=lane < lanes)
    tl.store(minima + place + lane, low.to(minima.dtype.element_ty), mask=lane < lanes)
    to = codes + place * BYTES + member[:, None] * code_member + lane * code_lane
    tl.store(to, packed.to(tl.uint8), mask=inside)


def quantise(x: Tensor, bits: int, group: int, axis: int) -> Quantised:
    """See `kvbench.ops.quantise`."""
    x = x if x.stride(2) == 1 else x.contiguous()
    heads, t, width = x.shape
    number, lanes = (t // group, width) if axis == 1 else (t, width // group)
    scale, minimum = (x.new_empty(heads, number, lanes) for _ in range(2))
    size = group * bits // 8
    codes = x.new_empty(
        heads, number * (size if axis == 1 else 1), lanes * (1 if axis == 1 else size), dtype=torch.uint8
    )
    strides = member_strides(x.stride(1), group, axis)
    sizes = block_sizes(bits, group, lanes)
    if number:
        quantise_kernel[(number, heads, triton.cdiv(lanes, sizes["LANES"]))](
            x, codes, scale, minimum, lanes, x.stride(0), *strides, *code_strides(lanes, size, axis), **sizes
        )
    return Quantised(codes, scale, minimum)


def member_strides(token: int, group: int, axis: int) -> tuple[int, int, int]:
    """Strides of a step, a lane and a member in rows with a stride of `token` elements between tokens."""
    return (group * token, 1, token) if axis == 1 else (token, group, 1)


def code_strides(lanes: int, size: int, axis: int) -> tuple[int, int]:
    """Strides of a lane and of a member in the packed codes of a step, `size` bytes per group."""
    return (1, lanes) if axis == 1 else (size, 1)


def block_sizes(bits: int, group: int, lanes: int) -> dict[str, int]:
    """Constants of the kernels: blocks of at most 2048 bytes of codes."""
    size = group * bits // 8
    members = triton.next_power_of_2(size)
    return {
        "BITS": bits,
        "BYTES": size,
        "LANES": min(triton.next_power_of_2(lanes), max(2048 // members, 1)),
        "MEMBERS": members,
    }
