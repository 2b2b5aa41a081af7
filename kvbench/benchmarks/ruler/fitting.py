"""RULER's rule for the size of a haystack: a binary search for all samples, then each sample shrinks until it fits."""

from collections.abc import Callable, Iterable, Iterator
from itertools import repeat

from kvbench.benchmarks.ruler.maker import Draft, Maker

Count = Callable[[str], int]  # tokens of a text, without special tokens

# Where its smallest haystack does not fit, the official generator draws the sample again without limit. Here it is
# drawn this many times; then haystacks smaller than the official ones are tried.
REDRAWS = 1000


class DoesNotFit(Exception):
    """The smallest haystack is longer than the length."""


def fitted(maker: Maker, count: int, length: int, tokens: Count, new_tokens: int = 0) -> Iterator[tuple[Draft, int]]:
    """`count` samples, each with its number of tokens, at most `length` with `new_tokens` for the answer.

    The samples do not depend on `count`. Raises DoesNotFit.
    """

    def first_that_fits(index: int, sizes: Iterable[int]) -> tuple[Draft, int] | None:
        for size in sizes:
            draft = maker.draft(size, index)
            if (total := tokens(draft.text) + new_tokens) <= length:
                return draft, total
        return None

    size = largest(maker, length, tokens, new_tokens)
    redraws = REDRAWS
    for index in range(count):
        sample = first_that_fits(index, official_sizes(maker, size, index, redraws))
        if sample is None:
            redraws = 0  # from here on, the official generator would not end
            sample = first_that_fits(index, smaller_sizes(maker, index))
        if sample is None:
            raise DoesNotFit
        yield sample


def largest(maker: Maker, length: int, tokens: Count, new_tokens: int) -> int:
    """Units of the largest haystack that fits, by binary search; the increment if none fits."""
    least = maker.least(0)
    probe = max(maker.probe, least)
    estimate = tokens(maker.trial(probe).text) / probe
    low, high = maker.increment, max(maker.upper(length, estimate), 2 * maker.increment)
    best = maker.increment
    while low <= high:
        middle = (low + high) // 2
        if middle < least:
            low = middle + 1
        elif tokens(maker.trial(middle).text) + maker.example_tokens + new_tokens <= length:
            best, low = middle, middle + 1
        else:
            high = middle - 1
    return best


def official_sizes(maker: Maker, size: int, index: int, redraws: int) -> Iterator[int]:
    """Down from `size` by increments, to the first size of at most one increment; then that size `redraws` times."""
    sizes = [*range(size, maker.increment, -maker.increment)]
    sizes.append(sizes[-1] - maker.increment if sizes else size)
    possible = [size for size in sizes if size >= maker.least(index)]
    yield from possible
    if sizes[-1] in possible:
        yield from repeat(sizes[-1], redraws)


def smaller_sizes(maker: Maker, index: int) -> Iterator[int]:
    """Sizes from one increment down in tenths of it, to the smallest haystack that the task allows."""
    smallest = maker.smallest(index)
    yield from range(maker.increment, smallest, -max(1, maker.increment // 10))
    yield smallest
