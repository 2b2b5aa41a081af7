"""Positions of the prompt tokens that a layer keeps, as a histogram in a short text."""

import re
import string
from collections.abc import Sequence
from functools import cached_property, lru_cache
from itertools import accumulate, groupby, islice, pairwise

import torch
import torch.nn.functional as F
from torch import Tensor

BINS = 64  # equal stretches of the prompt
LEVELS = string.ascii_lowercase + string.ascii_uppercase  # the share of a stretch that is kept: a is none, Z is all
Marks = tuple[int, ...]  # positions in a prompt
_RUN = re.compile(r"([a-zA-Z])(\d*)")


class KeptPositions:
    """A histogram of kept positions, on the device that counted it until `text` reads it.

    `text` has one letter for each of min(n, BINS) stretches, and a count after a repeated letter: `Z2a60Z2` means that
    the first two and the last two stretches are kept whole and all others are dropped. `a` means that no head keeps a
    token of the stretch, `Z` that all heads keep all its tokens.
    """

    def __init__(self, counts: Tensor | None, heads: int, n: int, marks: Marks = ()):
        """counts: kept positions between neighbours of `places(n, marks)`, summed over heads; None: all positions.

        marks   further positions at which a range of `share` may begin or end.
        """
        self.counts, self.heads, self.n, self.marks = counts, heads, n, marks

    @cached_property
    def text(self) -> str:
        return encode([self.share(start, end) for start, end in pairwise(edges(self.n))])

    def share(self, start: int, end: int) -> float:
        """The kept share of positions start to end - 1, mean over heads; start and end are edges or marks."""
        return (self._before[end] - self._before[start]) / (self.heads * (end - start))

    @cached_property
    def _before(self) -> dict[int, int]:
        """The number of kept positions before each edge or mark, summed over heads."""
        starts = places(self.n, self.marks)
        if self.counts is None:
            return {start: self.heads * start for start in starts}
        counts, self.counts = self.counts.tolist(), None
        return dict(zip(starts, accumulate(counts, initial=0), strict=True))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, KeptPositions) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)


def kept_positions(indices: Tensor | None, n: int, marks: Marks = ()) -> KeptPositions:
    """The histogram of kept positions [heads, k], ascending, of a prompt of n tokens, averaged over heads.

    `indices=None` means every token.
    """
    if indices is None:
        return KeptPositions(None, 1, n, marks)
    ends = _places_on(n, marks, indices.device).expand(len(indices), -1).contiguous()
    counts = torch.searchsorted(indices.contiguous(), ends).sum(dim=0).diff()
    return KeptPositions(counts, len(indices), n, marks)


def chosen_positions(chosen: Tensor, marks: Marks = ()) -> KeptPositions:
    """The histogram of the kept positions of chosen, bool [heads, n], averaged over heads."""
    return positions_of_layers(chosen[None], marks)[0]


def positions_of_layers(chosen: Tensor, marks: Marks) -> list[KeptPositions]:
    """Of each layer, the histogram of the kept positions of chosen, bool [layers, heads, n], averaged over heads."""
    _, heads, n = chosen.shape
    before = F.pad(chosen.sum(dim=1).cumsum(dim=1), (1, 0))  # kept tokens of all heads before each position
    counts = before[:, _places_on(n, marks, chosen.device)].diff()
    return [KeptPositions(layer, heads, n, marks) for layer in counts]


def edges(n: int) -> list[int]:
    """The first positions of the stretches of a prompt of n tokens, and n."""
    bins = min(n, BINS)
    return [-(-stretch * n // bins) for stretch in range(bins + 1)]


def places(n: int, marks: Marks) -> list[int]:
    """The edges of a prompt of n tokens and the marks, ascending."""
    return sorted({*edges(n), *marks})


@lru_cache(maxsize=64)
def _places_on(n: int, marks: Marks, device: torch.device) -> Tensor:
    """One copy to the device for all layers of a prompt."""
    return torch.tensor(places(n, marks), device=device)


def encode(shares: Sequence[float]) -> str:
    """Shares in [0, 1] as text, in steps of 1/51."""
    runs = ((level, len(list(run))) for level, run in groupby(map(_level, shares)))
    return "".join(LEVELS[level] + (str(count) if count > 1 else "") for level, count in runs)


def decode(text: str) -> list[float]:
    """The shares in a text of `kept_positions`; of one that anybody may have written at most BINS + 1."""
    runs = ((LEVELS.index(letter) / (len(LEVELS) - 1), int(count[:9] or 1)) for letter, count in _RUN.findall(text))
    return [*islice((share for share, count in runs for _ in range(count)), BINS + 1)]


def _level(share: float) -> int:
    top = len(LEVELS) - 1
    return round(share) * top if share in (0, 1) else min(max(round(share * top), 1), top - 1)
