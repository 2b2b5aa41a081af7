"""A rotation as a table of cosines and sines, with channels that rotate together side by side.

RoPE rotates pairs of channels: (c, c + d/2) in most models, (2c, 2c + 1) in some, and only some of the channels in
others. The pairs are found by rotating unit vectors with the model's RoPE. In *paired order* the channels of a pair are
neighbours, and channels that do not rotate come last. A vector in paired order is a vector of complex numbers, and its
position multiplies them, whatever the model's layout.
"""

from typing import NamedTuple
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn

from kvbench.errors import UserError
from kvbench.ops.rope import Rope

# Positions at which pairs are detected: far enough apart that the slowest channels rotate visibly.
PROBES = (1, 17, 1009, 70001, 1 << 20)
# A table grows by this many positions.
STEP = 1024


class RopeTable:
    """The rotation of heads of `head_dim` channels. All layers and caches of a model share one: see `rope_table`."""

    def __init__(self, rope: Rope, head_dim: int):
        pairs = partners(rope, head_dim)
        rest = sorted(set(range(head_dim)) - {channel for pair in pairs for channel in pair})
        self.order = torch.tensor([channel for pair in pairs for channel in pair] + rest)  # [head_dim], paired order
        self.turned = 2 * len(pairs)
        self._orders: dict[torch.device, Tensor] = {}
        self._turns: dict[torch.device, Tensor] = {}

    def order_on(self, device: torch.device) -> Tensor:
        """`order` on a device."""
        if device not in self._orders:
            self._orders[device] = self.order.to(device)
        return self._orders[device]

    def pair(self, x: Tensor) -> Tensor:
        """x [..., head_dim] in paired order, a copy."""
        return x.index_select(-1, self.order_on(x.device))

    def turns(self, rope: Rope, length: int, device: torch.device) -> Tensor:
        """Cosine and sine of each pair at positions 0 … at least length - 1, float32 [positions, pairs, 2]."""
        table = self._turns.get(device)
        if table is None or len(table) < length:
            table = self._turns[device] = self._table(rope, -(-length // STEP) * STEP, device)
        return table

    @torch.inference_mode(False)
    @torch.no_grad()
    def _table(self, rope: Rope, length: int, device: torch.device) -> Tensor:
        firsts, seconds = (self.order[side : self.turned : 2].to(device) for side in (0, 1))
        x = torch.zeros(1, 1, len(self.order), device=device)
        x[..., firsts] = 1.0  # R(p) turns the unit vector of a pair's first channel into its cosine and sine
        rotated = rope.rotate(x.expand(1, length, -1), torch.arange(length, device=device))[0]
        return torch.stack([rotated[:, firsts], rotated[:, seconds]], dim=-1)


_TABLES: WeakKeyDictionary[nn.Module, dict[tuple[int, str | None, bool], RopeTable]] = WeakKeyDictionary()


def rope_table(rope: Rope, head_dim: int) -> RopeTable:
    """The table of a model's rotation, made once for each model, head_dim and type of layers.

    Raises UserError if the rotation does more than rotate pairs of channels.
    """
    of_model = _TABLES.setdefault(rope.embedding, {})
    key = head_dim, rope.layer_type, rope.still
    if key not in of_model:
        of_model[key] = RopeTable(rope, head_dim)
    return of_model[key]


class Pair(NamedTuple):
    """Two channels."""

    low: int
    high: int


@torch.inference_mode(False)
@torch.no_grad()
def partners(rope: Rope, head_dim: int) -> list[Pair]:
    """The pairs of channels that R(p) rotates, ascending; neighbouring channels if it rotates none (an angle of 0)."""
    if rope.still:
        return [Pair(low, low + 1) for low in range(0, head_dim - 1, 2)]
    units = torch.eye(head_dim)[:, None].expand(-1, len(PROBES), -1)
    rotated = rope.rotate(units, torch.tensor(PROBES)).transpose(0, 1)  # [probes, channel in, channel out]
    mixed = (rotated != 0).any(dim=0)
    mixed.fill_diagonal_(False)
    pairs = [Pair(a, b) for a, b in mixed.nonzero().tolist() if a < b]
    channels = [channel for pair in pairs for channel in pair]
    turns = len(set(channels)) == len(channels)
    for a, b in pairs if turns else ():
        cosine, sine = rotated[:, a, a], rotated[:, a, b]
        turns &= rotated[:, b, b].equal(cosine) and rotated[:, b, a].equal(-sine)
    if not turns:
        raise UserError("this model's rotary embedding does more than rotate pairs of channels")
    return pairs


def unturn(x: Tensor, turns: Tensor) -> Tensor:
    """Undo the rotation of float32 x [len, head_dim] in paired order by turns [len or 1, pairs, 2]; in place.

    The conjugate is computed explicitly: under a dispatch mode torch ignores a lazy conjugate.
    """
    pairs = turns.shape[-2]
    torch.view_as_complex(x[:, : 2 * pairs].unflatten(-1, (pairs, 2))).mul_(
        torch.view_as_complex(turns).conj_physical()
    )
    return x
