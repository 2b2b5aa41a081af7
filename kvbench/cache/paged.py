"""Keys and values in pages; attention reads the pages that matter most to the current query."""

import torch
from torch import Tensor

from kvbench.cache.base import Growing, LayerCache
from kvbench.cache.reserve_ratio import Kept
from kvbench.ops.attention import bent_attention
from kvbench.ops.multiples import multiples
from kvbench.ops.sdpa import sdpa
from kvbench.ops.softmax import Scaling, Softmax

ROOM = 4  # pages by which a buffer grows


class PagedLayer(LayerCache):
    """All tokens, in pages of `page` consecutive tokens, with the smallest and the largest key per page and channel.

    Each query head reads only the `pages` pages with the largest upper bounds of its products with keys, Σ over
    channels of max(q·smallest, q·largest). Ties go to the earlier page.
    """

    def __init__(
        self,
        keys: Tensor,
        values: Tensor,
        page: int,
        pages: int,
        group: int,
        last_always: bool,
        seen: int,
        kept: Kept,
    ):
        """keys, values [num_key_value_heads, n, head_dim] of heads with `group` query heads each.

        last_always: the newest page is always read.
        """
        super().__init__(seen, kept)
        self.page, self.pages, self.group, self.last_always = page, pages, group, last_always
        self.length = keys.shape[1]
        self.rows = torch.cat([keys, values], dim=2)  # one operation reads a page; growth adds whole pages
        self.bounds = Growing(page_bounds(keys, page), block=ROOM)
        self.shared = torch.zeros((), dtype=torch.int64, device=keys.device)  # tokens read so far, once per KV head
        self.unshared = 0  # tokens read so far, as `read_bytes` counts them

    @property
    def held(self) -> int:
        """Pages that hold tokens."""
        return int(self.bounds.length)

    def tensors(self) -> list[Tensor]:
        return [self.rows, self.bounds.buffer, self.shared]

    @property
    def filled_bytes(self) -> int:
        return int(self._token_bytes * self.length + self.bounds.filled_bytes + self.shared.nbytes)

    @property
    def read_bytes(self) -> int:
        """All bounds, and pages as if the query heads of a KV head chose different pages: see `unread_bytes`."""
        return self.bounds.filled_bytes + self._most * self._token_bytes

    @property
    def unread_bytes(self) -> int:
        skipped = self.unshared - int(self.shared)
        return skipped * self._token_bytes // len(self.rows)

    def append(self, keys: Tensor, values: Tensor) -> None:
        """Append one token, [1, num_key_value_heads, 1, head_dim]."""
        heads, capacity, width = self.rows.shape
        if self.length == capacity:
            room = -capacity % self.page + ROOM * self.page
            # zeros, because attention reads them
            self.rows = torch.cat([self.rows, self.rows.new_zeros(heads, room, width)], dim=1)
        d = keys.shape[3]
        row = self.rows[:, self.length]  # [heads, width of a key and a value]
        row[:, :d], row[:, d:] = keys[0, :, 0], values[0, :, 0]
        extend_bounds(self.bounds, keys[0], self.length, self.page)
        self.length += 1

    def attend(self, query: Tensor, scaling: Scaling) -> Tensor:
        """Attention of one query per head."""
        chosen = self.choose(query)  # [heads, g, pages]
        tokens = self._tokens(chosen)
        self._count(tokens)
        return self._attention(query, chosen, tokens, scaling)

    def reread(self, query: Tensor, scaling: Scaling) -> Tensor:
        chosen = self.choose(query)
        return self._attention(query, chosen, self._tokens(chosen), scaling)

    def _attention(self, query: Tensor, chosen: Tensor, tokens: Tensor, scaling: Scaling) -> Tensor:
        heads, capacity, width = self.rows.shape
        page = self.page
        number = chosen + multiples(heads, capacity // page, query.device, torch.int64)[:, None, None]
        rows = self.rows.view(heads * capacity // page, page * width).index_select(0, number.flatten())
        rows = rows.view(query.shape[1], 1, -1, width)
        d = query.shape[-1]
        keys, values = rows[..., :d], rows[..., d:]
        held = (tokens < self.length).view(query.shape[1], 1, 1, -1)
        if isinstance(scaling, Softmax):
            query_rows, key_rows, values = (x.transpose(0, 1) for x in (query.view(-1, 1, 1, d), keys, values))
            return bent_attention(query_rows, key_rows, values, scaling, held.transpose(0, 1))
        out = sdpa(query.view(-1, 1, 1, d), keys, values, scaling, held)
        return out.view(*query.shape[:-1], -1)

    def choose(self, query: Tensor) -> Tensor:
        """The pages that each query head reads, [num_key_value_heads, query heads of a group, pages]."""
        grouped = query.view(len(self.rows), -1, query.shape[3]).float()
        # where q < 0 the smallest key gives the largest product
        signed = torch.cat([grouped.clamp(max=0), grouped.clamp(min=0)], dim=2)
        upper = signed @ self.bounds.view.float().mT  # [heads, g, held]
        if self.last_always:
            upper[..., -1] = float("inf")
        return upper.sort(dim=2, descending=True, stable=True).indices[..., : self.pages]

    @property
    def _token_bytes(self) -> int:
        return int(self.rows.shape[2] * self.rows.element_size() * len(self.rows))

    @property
    def _most(self) -> int:
        """Upper bound of the tokens of a KV head that its query heads read."""
        return min(self.group * self.pages * self.page, self.length)

    def _tokens(self, chosen: Tensor) -> Tensor:
        """The places in the chosen pages, also those of no token yet, [heads, g, pages, page]."""
        return (chosen * self.page)[..., None] + multiples(self.page, 1, chosen.device, torch.int64)

    def _count(self, tokens: Tensor) -> None:
        read = torch.zeros(len(tokens), self.held * self.page, dtype=torch.bool, device=tokens.device)
        self.shared += read.scatter_(1, tokens.flatten(1), True)[:, : self.length].sum()
        self.unshared += len(tokens) * self._most


def page_bounds(keys: Tensor, page: int) -> Tensor:
    """The smallest, then the largest key of each page and channel, [heads, pages, 2 · head_dim].

    keys [heads, n, head_dim].
    """
    heads, n, d = keys.shape
    held = -(-n // page)
    # an incomplete page repeats the last key, which changes no bound
    of_pages = torch.cat([keys, keys[:, -1:].expand(-1, held * page - n, -1)], dim=1).view(heads, held, page, d)
    return torch.cat([of_pages.amin(dim=2), of_pages.amax(dim=2)], dim=2)


def extend_bounds(bounds: Growing, key: Tensor, length: int, page: int) -> None:
    """Extend the `page_bounds` of `length` keys by the next key [heads, 1, head_dim]."""
    number, place = divmod(length, page)
    if place == 0:
        bounds.append(torch.cat([key, key], dim=2))
        return
    low, high = bounds.view[:, number].chunk(2, dim=1)
    torch.minimum(low, key[:, 0], out=low)
    torch.maximum(high, key[:, 0], out=high)
