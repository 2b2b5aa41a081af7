"""Triton: rows from packed codes, one launch."""

import torch
import triton
import triton.language as tl
from torch import Tensor

from kvbench.ops.kernels.quantise import block_sizes, code_strides, member_strides


@triton.jit
def dequantise_kernel(
    codes: tl.tensor, scales: tl.tensor, minima: tl.tensor, out: tl.tensor, lanes: tl.tensor, head_codes: tl.tensor,
    head_scales: tl.tensor, head_minima: tl.tensor, head_out: tl.tensor, step_stride: tl.tensor, lane_stride: tl.tensor,
    member_stride: tl.tensor, code_lane: tl.tensor, code_member: tl.tensor, limit: tl.tensor, BITS: tl.constexpr,
    BYTES: tl.constexpr, LANES: tl.constexpr, MEMBERS: tl.constexpr,
) -> None:  # fmt: skip
    """One program per step and head; steps, lanes and members as in `quantise_kernel`."""
    step, head = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    lane = tl.program_id(2) * LANES + tl.arange(0, LANES)
    member = tl.arange(0, MEMBERS)
    inside = (member < BYTES)[:, None] & (lane < lanes)
    place = step * lanes
    scale = tl.load(scales + head * head_scales + place + lane, mask=lane < lanes, other=0.0).to(tl.float32)
    minimum = tl.load(minima + head * head_minima + place + lane, mask=lane < lanes, other=0.0).to(tl.float32)
    at = codes + head * head_codes + place * BYTES + member[:, None] * code_member + lane * code_lane
    packed = tl.load(at, mask=inside, other=0).to(tl.int32)
    to = out + head * head_out + step * step_stride + member[:, None] * member_stride + lane * lane_stride
    for plane in tl.static_range(8 // BITS):
        code = (packed >> plane * BITS) & (2**BITS - 1)
        row = code.to(tl.float32) * scale + minimum
        row = tl.minimum(tl.maximum(row, -limit), limit)
        tl.store(to + plane * BYTES * member_stride, row.to(out.dtype.element_ty), mask=inside)


def dequantise(packed: Tensor, scale: Tensor, minimum: Tensor, bits: int, group: int, axis: int) -> Tensor:
    """See `kvbench.ops.quantise`."""
    heads, number, lanes = scale.shape
    t, width = (number * group, lanes) if axis == 1 else (number, lanes * group)
    out = scale.new_empty(heads, t, width)
    sizes = block_sizes(bits, group, lanes)
    if number:
        dequantise_kernel[(number, heads, triton.cdiv(lanes, sizes["LANES"]))](
            packed, scale, minimum, out, lanes, packed.stride(0), scale.stride(0), minimum.stride(0), out.stride(0),
            *member_strides(width, group, axis), *code_strides(lanes, group * bits // 8, axis),
            torch.finfo(scale.dtype).max, **sizes,
        )  # fmt: skip
    return out
