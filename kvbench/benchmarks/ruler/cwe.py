"""RULER's common word extraction: a numbered list in which ten words occur more often than the others."""

from collections.abc import Callable, Sequence
from random import Random

from kvbench.benchmarks.ruler.maker import Draft, Maker
from kvbench.benchmarks.ruler.words import word_lists
from kvbench.errors import UserError

_COMMON = 10


class CommonWordsMaker(Maker):
    """Generates samples of cwe; the size of a haystack is its number of distinct words."""

    increment = 10
    probe = 4096

    def __init__(self, texts: dict[str, str], more_words: Callable[[], Sequence[str]], length: int, seed: int):
        self.template, self.prefix = texts["cwe"], texts["cwe_prefix"]
        self.more_words, self.seed, self.random = more_words, seed, Random(seed)
        self.words = list(word_lists().all)
        Random(seed).shuffle(self.words)
        # words of the example, and how often it has common and other words; the same for the question's list
        self.example, self.repeats = ((40, 10, 3), (30, 3)) if length >= 4096 else ((20, 3, 1), (6, 1))

    def draft(self, size: int, index: int) -> Draft:
        example, answer = self._list(*self.example)
        shot = f"{self.template.format(context=example, query='')}{self.prefix} {_numbered(answer)}"
        context, common = self._list(size, *self.repeats)
        return Draft(f"{shot}\n{self.template.format(context=context, query='')}", self.prefix, common)

    def upper(self, length: int, estimate: float) -> int:
        return int(length // estimate) * 2

    def smallest(self, index: int) -> int:
        return _COMMON

    def _list(self, size: int, common_repeats: int, other_repeats: int) -> tuple[str, list[str]]:
        """A numbered list of `size` words, and the common words in it."""
        # RULER's longer list is used only where wonderwords' is too short
        words = self.words if size <= len(self.words) else self.more_words()
        if size > len(words):
            raise UserError(f"cwe at this length draws from {size} words, but there are only {len(words)}")
        drawn = self.random.sample(words, size)
        common, uncommon = drawn[:_COMMON], drawn[_COMMON:]
        items = common * common_repeats + uncommon * other_repeats
        Random(self.seed).shuffle(items)
        return _numbered(items), common


def _numbered(words: Sequence[str]) -> str:
    return " ".join(f"{number}. {word}" for number, word in enumerate(words, 1))
