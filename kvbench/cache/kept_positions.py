"""Positions of the prompt tokens that a layer kept, as a histogram written as a short text."""

import re
import string
from collections.abc import Sequence
from itertools import groupby, pairwise

import torch
from torch import Tensor

BINS = 64  # equal stretches of the prompt
LEVELS = string.ascii_lowercase + string.ascii_uppercase  # the share of a stretch that is kept: a none, Z all
_RUN = re.compile(r"([a-zA-Z])(\d*)")


def kept_positions(indices: Tensor | None, n: int) -> str:
    """The histogram of kept positions [heads, k], ascending, of a prompt of n tokens, averaged over heads.

    `indices=None` stands for every token.

    One letter for each of min(n, BINS) stretches, and a count behind a letter that is repeated: `Z2a60Z2` kept the
    first and the last two stretches whole and nothing between. Only a stretch that no head keeps a token of is `a`,
    and only one that all heads keep whole is `Z`.
    """
    bins = min(n, BINS)
    if indices is None:
        return encode([1.0] * bins)
    starts = [-(-stretch * n // bins) for stretch in range(bins + 1)]
    edges = torch.tensor(starts, device=indices.device).repeat(len(indices), 1)
    counts = torch.searchsorted(indices.contiguous(), edges).sum(dim=0).diff().tolist()
    sizes = [len(indices) * (end - start) for start, end in pairwise(starts)]
    return encode([count / size for count, size in zip(counts, sizes, strict=True)])


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
