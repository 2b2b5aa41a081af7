"""Allocation: how many tokens each layer keeps."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from numbers import Integral, Real

import numpy as np

from kvbench.errors import UserError
from kvbench.methods.facts import Stated


class Allocation(Stated, ABC):
    """Divides a mean budget between the layers. A new allocation is one class with `tokens`.

    It is called once for a prompt length and budget and depends on nothing else, so that a layer can be compressed
    before the next one has run.
    """

    @abstractmethod
    def tokens(self, budget: int, n: int, window: int, num_layers: int) -> Sequence[int]:
        """Tokens per head in each layer, lowest layer first, for a mean of `budget` and a prompt of n tokens.

        Called with window < budget < n, where `window` is the number of last tokens that the scoring always keeps. A
        layer's tokens include the window: at least `window` and at most n for each layer. Layers below
        one token, or below what the scoring always keeps of the prompt, get it from the largest layers.
        """


def checked_tokens(allocation: Allocation, tokens: object, budget: float, num_layers: int) -> Sequence[int]:
    """What an allocation returned. Raises UserError unless it is a number of tokens for each layer: a whole one, except
    where heads take fractions of a token, so that the budget is one, too."""
    layers = list(tokens) if isinstance(tokens, Sequence | np.ndarray) else []
    kind = Integral if isinstance(budget, Integral) else Real
    if len(layers) == num_layers and all(isinstance(layer, kind) for layer in layers):
        return [layer.item() if isinstance(layer, np.generic) else layer for layer in layers]
    raise UserError(
        f"{type(allocation).__name__} gave {tokens!r}: it must give a whole number of tokens per head to each of "
        f"{num_layers} layers"
    )


def water_filled(shares: Sequence[float], most: float) -> list[float]:
    """`shares` cut to `most` each; the excess is divided equally between the others, repeatedly.

    The sum stays the same unless it exceeds `most` times the number of shares.
    """
    filled = list(shares)
    while (excess := sum(share - most for share in filled if share > most)) > 1e-9:  # float noise
        filled = [min(share, most) for share in filled]
        free = [i for i, share in enumerate(filled) if share < most]
        for i in free:
            filled[i] += excess / len(free)
    return [min(share, most) for share in filled]


def largest_remainder(shares: Sequence[float], total: int) -> list[int]:
    """Non-negative shares rounded down; those with the largest remainders are raised by one until the sum is `total`.

    Ties go to the smaller index, so a non-increasing sequence stays non-increasing.
    """
    # 1e-9 forgives float noise on whole numbers
    floors = [int(share + 1e-9) for share in shares]
    by_remainder = sorted(range(len(shares)), key=lambda i: (round(floors[i] - shares[i], 9), i))
    for i in by_remainder[: total - sum(floors)]:
        floors[i] += 1
    return floors


def with_at_least(least: int, tokens: Sequence[int], whole: int | None = None) -> list[int]:
    """`tokens` with at least `least` in each layer; the largest layers give them while they have more.

    Layers with `whole` tokens give nothing: they are to stay so. Of equals the last one gives first, so that a
    non-increasing sequence stays one.
    """
    result = [max(layer, least) for layer in tokens]
    givers = [i for i, layer in enumerate(tokens) if layer > least and layer != whole]
    if min(tokens) >= least or not givers:
        return result
    for _ in range(sum(result) - sum(tokens)):
        largest = max(givers, key=lambda i: (result[i], i))
        if result[largest] > least:
            result[largest] -= 1
    return result
