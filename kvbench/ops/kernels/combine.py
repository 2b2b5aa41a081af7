"""Combines the parts of an attention that was split over keys."""

import triton
import triton.language as tl


@triton.jit(do_not_specialize=["splits"])  # grows by 1 with every 256 tokens
def combine_kernel(
    partial: tl.tensor, lse: tl.tensor, out: tl.tensor, splits: tl.tensor, total: tl.tensor, D: tl.constexpr,
    WIDTH: tl.constexpr, AT_ONCE: tl.constexpr,
) -> None:  # fmt: skip
    """One program per query row: out [total, D], the mean of its splits weighted by their sums; zeros without keys.

    partial [splits, total, D] is normalised, lse [splits, total] its log2-sum-exp2, -inf without visible keys.
    """
    row = tl.program_id(0).to(tl.int64)
    channel = tl.arange(0, WIDTH)
    within = channel < D
    largest = -float("inf")
    total_weight = 0.0
    mean = tl.zeros([WIDTH], tl.float32)
    for first in range(0, splits, AT_ONCE):
        split = first + tl.arange(0, AT_ONCE)
        place = split.to(tl.int64) * total + row
        part = tl.load(lse + place, mask=split < splits, other=-float("inf"))
        new = tl.maximum(largest, tl.max(part, 0))
        base = tl.where(new == -float("inf"), 0.0, new)
        weight = tl.exp2(part - base)
        decay = tl.exp2(largest - base)
        x = tl.load(partial + place[:, None] * D + channel, mask=(weight > 0)[:, None] & within, other=0.0)
        mean = mean * decay + tl.sum(x * weight[:, None], 0)
        total_weight = total_weight * decay + tl.sum(weight, 0)
        largest = new
    mean = mean / tl.where(total_weight == 0, 1.0, total_weight)
    tl.store(out + row * D + channel, mean.to(out.dtype.element_ty), mask=within)
