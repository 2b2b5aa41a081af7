"""The words of RULER: the lists of wonderwords, read from the installed package, and pairs of them."""

import hashlib
from bisect import bisect_right
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache, cached_property
from pathlib import Path

from kvbench.benchmarks.published_data import installed_folder
from kvbench.errors import UserError
from kvbench.utils.extras import lacking


@dataclass(frozen=True)
class WordLists:
    """wonderwords' lists in the order of their files."""

    nouns: tuple[str, ...]
    adjectives: tuple[str, ...]
    verbs: tuple[str, ...]

    @cached_property
    def all(self) -> list[str]:
        """Every word once, sorted."""
        return sorted({*self.nouns, *self.adjectives, *self.verbs})

    @cached_property
    def sha256(self) -> str:
        return hashlib.sha256(
            "\n\n".join(map("\n".join, (self.nouns, self.adjectives, self.verbs))).encode()
        ).hexdigest()


@cache
def word_lists() -> WordLists:
    """The lists of the installed wonderwords, which is not imported. UserError where it is not installed."""
    if (package := installed_folder("wonderwords")) is None:
        raise UserError(f"RULER's lists of words come from {lacking('wonderwords')}")
    return WordLists(*(_lines(package / "assets" / f"{name}list.txt") for name in ("noun", "adjective", "verb")))


def _lines(file: Path) -> tuple[str, ...]:
    with file.open(encoding="utf-8") as lines:
        return tuple(line.rstrip() for line in lines)


class Pairs:
    """Every `adjective-noun` once, sorted, for random.choice: six million, computed when they are read.

    Each adjective has a block of pairs, in sorted order. Blocks interleave only where one adjective with its hyphen
    begins another (`well-` and `well-off-`); those are merged in memory.
    """

    def __init__(self, adjectives: Iterable[str], nouns: Iterable[str]):
        self._nouns = sorted(set(nouns))
        self._blocks: list[str | list[str]] = []
        self._starts = [0]
        for family in _families(sorted({f"{adjective}-" for adjective in adjectives})):
            block = family[0] if len(family) == 1 else sorted({head + noun for head in family for noun in self._nouns})
            size = len(self._nouns) if isinstance(block, str) else len(block)
            self._blocks.append(block)
            self._starts.append(self._starts[-1] + size)

    def __len__(self) -> int:
        return self._starts[-1]

    def __getitem__(self, index: int) -> str:
        if not 0 <= index < len(self):
            raise IndexError(index)
        number = bisect_right(self._starts, index) - 1
        block, index = self._blocks[number], index - self._starts[number]
        return block + self._nouns[index] if isinstance(block, str) else block[index]


def _families(heads: list[str]) -> list[list[str]]:
    """Sorted heads in groups; the first of a group begins all others."""
    families: list[list[str]] = []
    for head in heads:
        if families and head.startswith(families[-1][0]):
            families[-1].append(head)
        else:
            families.append([head])
    return families


@cache
def pairs() -> Pairs:
    lists = word_lists()
    return Pairs(lists.adjectives, lists.nouns)
