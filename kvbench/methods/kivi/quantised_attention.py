"""Attention of one decoded token over keys and values that are held as packed codes."""

from functools import reduce
from operator import add
from typing import NamedTuple

import torch
from torch import Tensor

from kvbench.ops import softmax
from kvbench.ops.operator import of_one_width, operator
from kvbench.ops.quantise import unpack, write_planes
from kvbench.ops.signature import Varying
from kvbench.ops.softmax import Scaling

# Elements of keys or values that the reference unpacks at a time: 4 MB in float32.
BLOCK_ELEMENTS = 2**20


class Stored(NamedTuple):
    """Keys or values of all heads: older tokens as codes, scale and minimum from `quantise`, and later tokens as rows.
    Longer tensors have room for more codes at the end."""

    codes: Tensor
    scale: Tensor
    minimum: Tensor
    rows: Tensor  # [heads, at most `ring`, head_dim] in the model's dtype: token i is row i mod `ring`
    bits: int


def _fake(query: Tensor, keys: Stored, values: Stored, *rest: object) -> Tensor:
    return query.new_empty(*query.shape[:-1], values.rows.shape[2])


def _takes(query: Tensor, keys: Stored, values: Stored, *rest: object) -> bool:
    return of_one_width(keys.rows, values.rows)


@operator(launches=2, fake=_fake, takes=_takes)
def quantised_attention(
    query: Tensor,
    keys: Stored,
    values: Stored,
    lengths: Tensor,
    longest: Varying,
    ring: int,
    group: int,
    scaling: Scaling,
) -> Tensor:
    """softmax(QKᵀ·scaling)V [1, num_attention_heads, 1, width of values] of query [1, num_attention_heads, 1, head_dim]
    over n tokens. Keys and values may have different widths.

    lengths: int32 [heads] on the device, n for every head; `longest` is an upper bound of n that the host knows. The
    oldest tokens are quantised: n - n mod `ring` keys, in groups of `group` tokens, and all values except the last
    `ring`, in groups of `group` channels. Numbers that belong to no token must be finite.

    Codes are decoded to float32 and never written back as rows: keys are restored a block at a time, and the scale of
    values multiplies the probabilities. Restored vectors are not rounded to the model's dtype, so in 16 bits the result
    is closer to the codes than attention over rows of `dequantise`; in float32 both agree up to rounding.
    """
    heads, coded, recent = keys.rows.shape[0], keys.scale.shape[1] * group, keys.rows.shape[1]
    length = lengths[0]
    older_keys, older_values = length - length % ring, (length - ring).clamp(min=0)
    grouped = query.float().view(heads, -1, query.shape[-1])  # [heads, query heads of a group, head_dim]
    grouped = grouped * softmax.plain(scaling)
    logits = _logits(grouped, keys.codes, keys.scale.float(), keys.minimum.float(), keys.bits, group)
    logits.append(grouped @ keys.rows.float().mT)
    place = torch.arange(coded + recent, device=query.device)  # room for coded keys, and the ring
    valid = torch.where(place < coded, place < older_keys, place - coded + older_keys < length)
    logits = softmax.capped_(torch.cat(logits, dim=-1), scaling).masked_fill_(~valid, float("-inf"))
    weights = softmax.weights(logits, scaling)  # [heads, query heads, coded + recent]

    def of_tokens(tokens: Tensor, valid: Tensor) -> Tensor:
        """The weights of these tokens [heads, query heads, tokens]; 0 where `valid` is false."""
        places = torch.where(tokens < older_keys, tokens, tokens - older_keys + coded)
        return weights.index_select(-1, places.clamp_(0, coded + recent - 1)) * valid

    slots = torch.arange(values.rows.shape[1], device=query.device)
    tokens = length - 1 - (length - 1 - slots) % ring  # the last token written to each row of the ring
    out = of_tokens(tokens, tokens >= 0) @ values.rows.float()
    if values.codes.shape[1]:
        tokens = torch.arange(values.codes.shape[1], device=query.device)
        older = of_tokens(tokens, tokens < older_values)
        sums = _weighted_sum(older, values.codes, values.scale.float(), values.bits, group)
        out += sums.add_((older @ values.minimum.float())[..., None]).flatten(2)
    return out.view(*query.shape[:-1], -1).to(query.dtype)


def _logits(query: Tensor, codes: Tensor, scale: Tensor, minimum: Tensor, bits: int, group: int) -> list[Tensor]:
    """query [heads, g, head_dim] times quantised keys, for blocks of tokens: [heads, g, t] each."""
    heads, groups, width = scale.shape
    scale, minimum = scale[:, :, None], minimum[:, :, None]
    packed = codes.view(heads, groups, group * bits // 8, width)
    logits = []
    for block in _blocks(groups, heads * group * width):
        keys = unpack(packed[:, block], bits, 2).float()  # [heads, groups, group, head_dim]
        torch.addcmul(minimum[:, block], keys, scale[:, block], out=keys)
        logits.append(query @ keys.view(heads, -1, width).mT)
    return logits


def _weighted_sum(weights: Tensor, codes: Tensor, scale: Tensor, bits: int, group: int) -> Tensor:
    """Σ weight·scale·code over quantised values for weights [heads, g, t]: [heads, g, groups, group of channels].

    Each weight is multiplied by the scale of each group of channels. One matrix product multiplies these by the codes
    of all groups, and only the products of a scale and a code of the same group are used.
    """
    heads, g, t = weights.shape
    groups, planes = scale.shape[-1], 8 // bits
    scaled = (scale.mT.contiguous()[:, :, None] * weights[:, None]).view(heads, groups * g, t)
    sums = []
    for block in _blocks(t, heads * groups * group):
        packed = codes[:, block]
        values = packed.new_empty(planes, *packed.shape)
        write_planes(packed, bits, values.unbind())
        sums.append([scaled[..., block] @ plane for plane in values.float().unbind()])
    total = torch.stack([reduce(add, parts) for parts in zip(*sums, strict=True)], dim=2)
    # the products of scales and codes of the same group, [heads, g, planes, part, groups]
    matched = total.view(heads, groups, g, planes, groups, -1).diagonal(dim1=1, dim2=4)
    return matched.permute(0, 1, 4, 2, 3).flatten(3)


def _blocks(length: int, elements: int) -> list[slice]:
    """Ranges of `length` steps that unpack to about BLOCK_ELEMENTS each, if a step unpacks to `elements`."""
    step = max(BLOCK_ELEMENTS // elements, 1)
    return [slice(start, min(start + step, length)) for start in range(0, length, step)]
