"""PyramidInfer's own cache: what is generated is thinned out, block by block, once it is no longer recent."""

import torch
from torch import Tensor

from kvbench.attention import dense_attention
from kvbench.cache.base import Growing, LayerCache
from kvbench.ratio import Kept


class ThinningLayer(LayerCache):
    """The prompt as it is, thinned generated tokens, and the last `tail` to `tail` + `block` generated ones.

    A block that has `tail` younger tokens is cut to the `keep` of its tokens to which the queries of these
    gave most attention, in the mean over heads, the weights rising from 1 to `distance_weight`. Which queries
    judge a block is known beforehand, so one running sum per token replaces the buffer of attention rows of
    the released code: the same choice in O(tail) instead of O(tail · len) memory.
    """

    def __init__(
        self,
        keys: Tensor,
        values: Tensor,
        seen: int,
        kept: Kept,
        tail: int,
        block: int,
        keep: int,
        distance_weight: float,
    ):
        """keys, values [num_key_value_heads, len, head_dim] of the prompt."""
        super().__init__(seen, kept)
        self.k, self.v = Growing(keys[None]), Growing(values[None])
        self.tail, self.block, self.keep, self.distance_weight = tail, block, keep, distance_weight
        self.scores = torch.zeros(0, device=keys.device)  # [pending] of the generated tokens not yet thinned

    def tensors(self) -> list[Tensor]:
        return [self.k.buffer, self.v.buffer, self.scores]

    def append(self, keys: Tensor, values: Tensor) -> None:
        self.k.append(keys)
        self.v.append(values)
        self.scores = torch.cat([self.scores, self.scores.new_zeros(keys.shape[2])])

    def attend(self, query: Tensor, scaling: float) -> Tensor:
        self._judge(query, scaling)
        out = dense_attention(query, self.k.view, self.v.view, scaling)
        if len(self.scores) == self.tail + self.block:
            self._thin()
        return out

    def _judge(self, query: Tensor, scaling: float) -> None:
        """Add this query's attention to the pending tokens of every block that ended before it."""
        pending = len(self.scores)
        judged = (pending - 1) // self.block * self.block  # the query's own block waits for later ones
        if judged == 0:
            return
        keys = self.k.view[0].float()
        grouped = query[0].float().unflatten(0, (keys.shape[0], -1)).squeeze(2)  # [kv, group, head_dim]
        row = (grouped @ keys.mT * scaling).softmax(dim=-1).mean(dim=(0, 1))  # [len]
        ends = torch.arange(judged, device=row.device) // self.block * self.block + self.block
        rank = pending - 1 - ends  # of the query among those that judge a token's block: 0 … tail - 1
        weights = 1 + (self.distance_weight - 1) * rank / max(self.tail - 1, 1)
        self.scores[:judged] += weights * row[-pending:][:judged]

    def _thin(self) -> None:
        """Cut the oldest pending block, in place: the buffers are this layer's own since the first append."""
        pending, device = len(self.scores), self.scores.device
        best = self.scores[: self.block].sort(descending=True, stable=True).indices[: self.keep].sort().values
        index = torch.cat([best, torch.arange(self.block, pending, device=device)])
        for store in (self.k, self.v):
            start = store.length - pending
            rows = store.view[..., start:, :].index_select(-2, index)
            store.buffer[..., start : start + len(index), :] = rows
            store.length = start + len(index)
        self.scores = self.scores[self.block :].clone()
