"""Keys before RoPE from keys after RoPE: each row is rotated back by its position."""

import torch
from torch import Tensor

from kvbench.ops.operator import operator


def _fake(x: Tensor, *rest: object) -> Tensor:
    return x.new_empty(x.shape, dtype=torch.float32)


@operator(launches=1, fake=_fake)
def turn_back(x: Tensor, positions: Tensor, turns: Tensor, order: Tensor) -> Tensor:
    """R(-positions) x for rows x [len, head_dim] of any dtype, positions int64 [len]: float32 [len, head_dim].

    `turns` [positions, pairs, 2] and `order` [head_dim] come from the model's `RopeTable`. Products and sums are
    rounded one by one, so the result equals the model's function (`Rope.rotate`) bit for bit.
    """
    firsts, seconds = order[: 2 * turns.shape[1]].view(-1, 2).unbind(dim=1)
    cosine, sine = turns[positions].unbind(dim=-1)
    x = x.float()
    a, b = x.index_select(1, firsts), x.index_select(1, seconds)
    out = x.clone()
    out.index_copy_(1, firsts, a * cosine + b * sine)
    return out.index_copy_(1, seconds, b * cosine - a * sine)
