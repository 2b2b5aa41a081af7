"""Positions of the prompt tokens that a layer kept, as a histogram written as a short text."""

import re
import string
from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import groupby, pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

BINS = 64  # equal stretches of the prompt
LEVELS = string.ascii_lowercase + string.ascii_uppercase  # the share of a stretch that is kept: a none, Z all
_RUN = re.compile(r"([a-zA-Z])(\d*)")


class KeptPositions:
    """A histogram of kept positions, on the device that counted it until `text` reads it.

    `text` has one letter for each of min(n, BINS) stretches, and a count behind a letter that is repeated: `Z2a60Z2`
    kept the first and the last two stretches whole and nothing between. Only a stretch that no head keeps a token of is
    `a`, and only one that all heads keep whole is `Z`.
    """

    def __init__(self, counts: Tensor | None, heads: int, n: int):
        """counts [min(n, BINS)]: kept positions of each stretch, of all heads together; None: all positions."""
        self.counts, self.heads, self.n = counts, heads, n

    @cached_property
    def text(self) -> str:
        starts = edges(self.n)
        if self.counts is None:
            return encode([1.0] * (len(starts) - 1))
        counts, self.counts = self.counts.tolist(), None
        sizes = [self.heads * (end - start) for start, end in pairwise(starts)]
        return encode([count / size for count, size in zip(counts, sizes, strict=True)])

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeptPositions) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


def kept_positions(indices: Tensor | None, n: int) -> KeptPositions:
    """The histogram of kept positions [heads, k], ascending, of a prompt of n tokens, averaged over heads.

    `indices=None` stands for every token.
    """
    if indices is None:
        return KeptPositions(None, 1, n)
    ends = _edges_on(n, indices.device).expand(len(indices), -1).contiguous()
    counts = torch.searchsorted(indices.contiguous(), ends).sum(dim=0).diff()
    return KeptPositions(counts, len(indices), n)


def chosen_positions(chosen: Tensor) -> KeptPositions:
    """The histogram of the kept positions of chosen, bool [heads, n], averaged over heads."""
    return positions_of_layers(chosen[None])[0]


def positions_of_layers(chosen: Tensor) -> list[KeptPositions]:
    """Of each layer, the histogram of the kept positions of chosen, bool [layers, heads, n], averaged over heads."""
    _, heads, n = chosen.shape
    before = F.pad(chosen.sum(dim=1).cumsum(dim=1), (1, 0))  # kept tokens of all heads before each position
    return [KeptPositions(counts, heads, n) for counts in before[:, _edges_on(n, chosen.device)].diff()]


def edges(n: int) -> list[int]:
    """Where the stretches of a prompt of n tokens begin, and where the last one ends."""
    bins = min(n, BINS)
    return [-(-stretch * n // bins) for stretch in range(bins + 1)]


@lru_cache(maxsize=64)
def _edges_on(n: int, device: torch.device) -> Tensor:
    """One copy to the device for all layers of a prompt."""
    return torch.tensor(edges(n), device=device)


def encode(shares: Sequence[float]) -> str:
    """Shares in [0, 1] as text, in steps of 1/51."""
    runs = ((level, len(list(run))) for level, run in groupby(map(_level, shares)))
    return "".join(LEVELS[level] + (str(count) if count > 1 else "") for level, count in runs)


def decode(text: str) -> list[float]:
    """The shares that a text of `kept_positions` stands for."""
    return [
        LEVELS.index(letter) / (len(LEVELS) - 1) for letter, count in _RUN.findall(text) for _ in range(int(count or 1))
    ]


def _level(share: float) -> int:
    top = len(LEVELS) - 1
    return round(share) * top if share in (0, 1) else min(max(round(share * top), 1), top - 1)
