"""Keys of which older tokens have lost some channels."""

import torch
from torch import Tensor

from kvbench.cache.base import Growing, LayerCache, filled
from kvbench.cache.coded.sequence import blocks
from kvbench.cache.reserve_ratio import Kept
from kvbench.ops import softmax
from kvbench.ops.bits import pack_bits, unpack_bits
from kvbench.ops.softmax import Scaling


class ThinKeysLayer(LayerCache):
    """Older keys without the channels that their head dropped, recent keys and all values whole.

    Attention takes the kept channels of the query to the older keys; no key is expanded.
    """

    batches = True

    def __init__(self, keys: Tensor, values: Tensor, channels: Tensor, recent: int, seen: int, kept: Kept):
        """keys, values [heads, k, head_dim]; channels [heads, some of head_dim], ascending, of the older k - recent."""
        super().__init__(seen, kept)
        heads, k, d = keys.shape
        self.older = keys[:, : k - recent].gather(2, channels[:, None].expand(-1, k - recent, -1))
        self.channels = pack_bits(
            torch.zeros(heads, d, dtype=torch.bool, device=keys.device).scatter_(1, channels, True)
        )
        self.recent, self.values = Growing(keys[:, k - recent :].clone()), Growing(values)

    def tensors(self) -> list[Tensor]:
        return [self.older, self.channels, self.recent.buffer, self.values.buffer]

    @property
    def filled_bytes(self) -> int:
        return filled(self.older, self.channels, self.recent, self.values)

    def append(self, keys: Tensor, values: Tensor) -> None:
        group = len(self.older) // keys.shape[1]  # unfolded: every query head gets its own copy
        if group > 1:  # else it would be a copy
            keys, values = keys.repeat_interleave(group, dim=1), values.repeat_interleave(group, dim=1)
        self.recent.append(keys[0])
        self.values.append(values[0])

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        """Attention of one query per head, with logits in float32."""
        heads, _, width = self.older.shape
        d = query.shape[-1]
        grouped = query.view(heads, -1, d).float() * softmax.plain(scaling)
        kept = unpack_bits(self.channels, d).sort(dim=1, descending=True, stable=True).indices[:, :width]
        thin = grouped.gather(2, kept[:, None].expand(-1, grouped.shape[1], -1))
        logits = [
            rows @ keys[:, block].float().mT
            for rows, keys in ((thin, self.older), (grouped, self.recent.view))
            for block in blocks(keys.shape[1], heads * keys.shape[2], query.device)
        ]
        weights = softmax.weights(softmax.capped_(torch.cat(logits, dim=-1), scaling), scaling).to(query.dtype)
        return (weights @ self.values.view).view(query.shape)
