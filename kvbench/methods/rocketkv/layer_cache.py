"""Keys and values; a query reads only the best tokens, by scores from a few channels of the keys' bounds."""

import torch
from torch import Tensor

from kvbench.cache.base import Growing, LayerCache, filled
from kvbench.cache.paged import extend_bounds, page_bounds
from kvbench.cache.reserve_ratio import Kept
from kvbench.ops.attention import dense_attention
from kvbench.ops.softmax import Scaling, plain


class HybridLayer(LayerCache):
    """Stores all keys and values, and the smallest and largest key per channel of each page of `page` tokens.

    The query heads of a KV head read the same `tokens` tokens (hybrid sparse attention, RocketKV), the tokens with the
    largest mean approximate attention. The approximation uses the `channels` channels in which the group's queries are
    largest: in each channel the page's largest key if the sum of the queries is positive, else its smallest key. All
    tokens of a page have the page's score; of equal scores the earlier token is read. Pages of one token need no
    bounds.
    """

    def __init__(self, keys: Tensor, values: Tensor, page: int, tokens: int, channels: int, seen: int, kept: Kept):
        """keys, values [num_key_value_heads, len, head_dim]."""
        super().__init__(seen, kept)
        self.page, self.tokens, self.channels = page, tokens, channels
        self.k, self.v = Growing(keys[None]), Growing(values[None])
        self.bounds = Growing(page_bounds(keys, page)) if page > 1 else None  # [heads, pages, 2 · head_dim]

    def tensors(self) -> list[Tensor]:
        stored = [self.k.buffer, self.v.buffer]
        return stored if self.bounds is None else [*stored, self.bounds.buffer]

    @property
    def filled_bytes(self) -> int:
        return filled(self.k, self.v, self.bounds)

    @property
    def read_bytes(self) -> int:
        """Bytes of the chosen tokens, and of `channels` channels of one bound of each page, which make the scores."""
        length, width = self.k.length, self.k.buffer.shape[3]
        if length <= self.tokens:
            return self.k.filled_bytes + self.v.filled_bytes
        pages = -(-length // self.page)
        return int((2 * self.tokens * width + pages * self.channels) * self.k.row_bytes // width)

    def append(self, keys: Tensor, values: Tensor) -> None:
        """Append one token, [1, num_key_value_heads, 1, head_dim]."""
        if self.bounds is not None:
            extend_bounds(self.bounds, keys[0], self.k.length, self.page)
        self.k.append(keys)
        self.v.append(values)

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        """Attention of one query per head."""
        keys, values = self.k.view, self.v.view
        if keys.shape[2] > self.tokens:
            chosen = self.choose(query, scaling)[None, :, :, None]
            keys, values = (x.gather(2, chosen.expand(-1, -1, -1, x.shape[3])) for x in (keys, values))
        return dense_attention(query, keys, values, scaling)

    def choose(self, query: Tensor, scaling: Scaling) -> Tensor:
        """The stored tokens that each KV head's query heads read, [num_key_value_heads, tokens]."""
        order = self.scores(query, scaling).sort(dim=1, descending=True, stable=True).indices
        return order[:, : self.tokens]

    def scores(self, query: Tensor, scaling: Scaling) -> Tensor:
        """Approximate attention, the mean over a group's query heads, float32 [num_key_value_heads, len].

        A model's soft cap and sinks are left out.
        """
        stored = self.k.view[0] if self.bounds is None else self.bounds.view
        grouped = query[0, :, 0].unflatten(0, (len(stored), -1)).float()  # [heads, g, head_dim]
        sizes = grouped.abs()
        best = sizes.sum(dim=1).sort(dim=1, descending=True, stable=True).indices[:, : self.channels]
        picked = grouped.gather(2, best[:, None].expand(-1, grouped.shape[1], -1))  # [heads, g, channels]
        columns = best
        if self.bounds is not None:
            columns = torch.where(picked.sum(dim=1) > 0, best + grouped.shape[2], best)
        part = stored.gather(2, columns[:, None].expand(-1, stored.shape[1], -1)).float()
        # fewer channels make smaller products, so the softmax is sharpened accordingly (SparQ attention, equation 8)
        share = (picked.abs().sum(dim=2, keepdim=True) / sizes.sum(dim=2, keepdim=True)).nan_to_num(1)
        logits = picked @ part.mT * plain(scaling) / share.sqrt()
        by_token = logits.repeat_interleave(self.page, dim=2)[..., : self.k.length]
        return by_token.softmax(dim=2).mean(dim=1)
