"""Finch's score: attention of the question's queries, and equal shares for the chunks of a prompt."""

import torch
import torch.nn.functional as F
from torch import Tensor

from kvbench.methods.facts import values
from kvbench.methods.scoring.window import Window
from kvbench.ops.attention import window_attention
from kvbench.prefill import LayerState
from kvbench.utils.checked import Positive, checked


@checked
class Finch(Window):
    """The mean attention of the last `window` queries, weighted by their positions (Corallo & Papotti 2024, arXiv
    2408.00167, §3).

    The window is the question, which always stays. A later query shares its attention among more tokens, so the
    weights of the query of position p, from 0, are multiplied by p, as FinchPress in kvpress does. There is no pooling.

    chunk   tokens of a chunk. Tokens are taken in turns, the best of each chunk, then the second best of each, …, so
            that each chunk keeps the same share. Consecutive tokens before the window form chunks, from the first token
            on. Ties: the earlier chunk. null: the best tokens of the whole prompt.
    """

    short = values(window=8, chunk=16)

    chunk: Positive | None = None

    def __post_init__(self) -> None:
        self.orders_by_scores = self.chunk is None

    def votes(self, layer: LayerState) -> Tensor:
        return layer.once(("finch", self.window), lambda: self._votes(layer))

    def _votes(self, layer: LayerState) -> Tensor:
        queries = layer.last_queries(self.window)
        count = queries.shape[1]
        positions = torch.arange(layer.n - count, layer.n, device=queries.device)
        return (window_attention(queries, layer.keys, layer.scaling) * positions[:, None]).sum(dim=1) / count

    @property
    def while_decoding(self) -> bool:
        return self.chunk is None  # chunks are of a prompt

    def order(
        self, order: Tensor, scores: Tensor, counts: int | Tensor, window: int, sure: int, layer: LayerState
    ) -> Tensor:
        if self.chunk is None:
            return order
        places = share_in_chunk(scores, self.chunk)
        places.scatter_(1, order[:, :sure], -1)
        return places.sort(dim=1, stable=True).indices


def share_in_chunk(scores: Tensor, chunk: int) -> Tensor:
    """The share of its chunk that ranks above each of scores [heads, len]: larger, or equal and earlier. float64.

    A score itself counts as half, so that the best of a short chunk does not come before the best of a longer one.
    """
    length = scores.shape[1]
    rows = F.pad(scores.float(), (0, -length % chunk), value=float("-inf")).unflatten(1, (-1, chunk))
    order = rows.sort(dim=2, descending=True, stable=True).indices
    ranks = torch.arange(chunk, device=scores.device).expand_as(order)
    rank = torch.empty_like(order).scatter_(2, order, ranks).flatten(1)[:, :length]
    starts = torch.arange(length, device=scores.device) // chunk * chunk
    sizes = (length - starts).clamp(max=chunk)
    return (rank + 0.5).double() / sizes
