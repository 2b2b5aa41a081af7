"""ThinK: keys without the channels that matter least to the last queries."""

from functools import cached_property

import torch
from torch import Tensor

from kvbench.cache.base import Growing, LayerCache, filled, unfolded
from kvbench.cache.coded.sequence import blocks
from kvbench.cache.reserve_ratio import Kept
from kvbench.errors import UserError
from kvbench.methods.facts import values
from kvbench.methods.selection import Selection, top_indices
from kvbench.methods.storage.base import KeptLayer, Storage
from kvbench.methods.storage.by_head import by_head
from kvbench.methods.storage.dense import Dense
from kvbench.ops import softmax
from kvbench.ops.bits import pack_bits, unpack_bits
from kvbench.ops.softmax import Scaling
from kvbench.prefill import LayerState, Needs
from kvbench.utils.checked import Fraction, NonNegative, Positive, checked


class ThinKeysLayer(LayerCache):
    """Older keys without the channels that their head dropped; whole recent keys and values.

    Attention multiplies the older keys by the kept channels of the query; no key is expanded.
    """

    batches = True

    def __init__(self, keys: Tensor, values: Tensor, channels: Tensor, recent: int, seen: int, kept: Kept):
        """keys, values [heads, k, head_dim]; channels [heads, kept channels], ascending, of the older keys."""
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
        self.recent.append(unfolded(keys, len(self.older))[0])
        self.values.append(unfolded(values, len(self.older))[0])

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
        return (weights @ self.values.view).view(*query.shape[:-1], -1)


@checked
class ThinK(Storage):
    """ThinK (Xu et al. 2024, arXiv 2407.21018) for the tokens that a method keeps.

    Each stored head drops the channels of keys with the smallest scores. A channel's score is the mean of its squared
    queries, over the prompt's last `window` queries and the head's group, times the mean of its squared keys over all
    kept tokens. The last `recent` tokens and decoded tokens keep all channels, and so do all values.

    share    share of a head's channels to drop, rounded down.
    recent   last kept tokens with whole keys.
    window   queries that score the channels.

    Source: the released code, which scores channels for every query head of the unfolded group and expands the older
    keys at every step.
    """

    short = values(recent=8)
    never_full = "without some channels"

    takes_ragged = batches = True

    share: Fraction = 0.4
    recent: NonNegative = 32
    window: Positive = 32

    @cached_property
    def needs(self) -> Needs:
        return Needs(window=self.window)

    @by_head
    def store(self, layer: LayerState, selection: Selection) -> LayerCache:
        keys, values = selection.of(layer.keys), selection.of(layer.values)
        (_, k, d), recent = keys.shape, min(self.recent, keys.shape[1])
        dropped = int(self.share * d + 1e-9)  # 1e-9: float noise on whole numbers
        if dropped == d:
            raise UserError(f"share={self.share:g} drops all {d} channels of a key: it must be below 1")
        if not dropped or k == recent:
            return Dense().store(layer, selection)
        channels = top_indices(self.scores(layer, keys), d - dropped)
        mask = -(-d // 8) / keys.element_size()  # size of a head's mask, in elements
        thin = (recent * d + (k - recent) * (d - dropped) + mask) / (k * d)
        kept = selection.kept(layer, r3=(1 + thin) / 2)
        return ThinKeysLayer(keys, values, channels, recent, layer.n, kept)

    def least_share(self, element_bytes: int, layer: KeptLayer | None = None) -> float:
        if layer is None or not layer.tokens:
            return 1 - self.share / 2
        older = max(layer.tokens - self.recent, 0) / layer.tokens
        return 1 - older * int(self.share * layer.head_dim + 1e-9) / layer.head_dim / 2

    def scores(self, layer: LayerState, keys: Tensor) -> Tensor:
        """Scores of the channels of stored keys [heads, k, head_dim]: float32 [heads, head_dim]."""
        queries = layer.last_queries(self.window).float().square().unflatten(0, (len(keys), -1))
        return queries.mean(dim=(1, 2)) * keys.float().square().mean(dim=1)
