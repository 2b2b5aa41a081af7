"""Packed attention by padding, for a GPU without Triton and without a kernel of torch."""

import torch
from torch import Tensor

from kvbench.ops.sdpa import sdpa
from kvbench.ops.segments import Segments, Visible


def padded_attention(
    query: Tensor, keys: Tensor, values: Tensor, segments: Segments, scaling: float, visible: Visible
) -> Tensor:
    """`packed_attention` with every segment padded to `longest` tokens, for each of its query heads.

    No wait for the device, but it needs memory for rows · num_attention_heads · longest keys and values.
    """
    rows, num_heads, q, _ = query.shape
    starts, lengths, heads, _, longest = segments
    query_heads = torch.arange(rows * num_heads, device=query.device)
    segment = torch.searchsorted(heads[1:], query_heads, right=True)  # segment of every query head
    count = lengths[segment][:, None]  # [rows · heads, 1]
    place = torch.arange(longest, device=query.device)
    # numbers after a segment may be NaN, so the segment's last token is repeated as padding
    last = count.clamp(min=1) - 1
    tokens = (starts[segment][:, None] + place.minimum(last)).clamp(max=len(keys) - 1)
    ends = count - q + 1 + torch.arange(q, device=query.device)  # [rows · heads, q] tokens that a query sees
    seen = place < ends[..., None]  # [rows · heads, q, longest]
    if visible.bits is not None:
        masked, bit_starts, bits = visible
        assert masked is not None and bit_starts is not None and bits is not None, "they come together"
        bound = masked[segment][:, None]
        within = query_heads - heads[segment]  # index within the group
        byte = bit_starts[segment][:, None] + within[:, None] * ((bound + 7) // 8) + place // 8
        bit = bits[byte.clamp(max=len(bits) - 1)] >> (place % 8).to(torch.uint8) & 1
        seen &= ((place >= bound) | bit.bool())[:, None]
    out = sdpa(query.flatten(0, 1)[:, None], keys[tokens][:, None], values[tokens][:, None], scaling, seen[:, None])[
        :, 0
    ]
    return out.where(count[..., None] > 0, 0).unflatten(0, (rows, num_heads))
