"""The interface of RULER's generators, which draft samples with a haystack of a given size."""

from abc import ABC, abstractmethod
from dataclasses import dataclass


@dataclass(frozen=True)
class Draft:
    """A sample whose length has not been checked yet."""

    input: str
    prefix: str  # text that begins the model's answer
    outputs: list[str]

    @property
    def text(self) -> str:
        return self.input + self.prefix


class Maker(ABC):
    """Draws samples of one task from one random stream, in the order of the official generator."""

    increment: int  # units by which a haystack that does not fit shrinks; the search starts at it
    probe: int  # size of the haystack from which the tokens of a unit are estimated
    example_tokens: int = 0  # tokens that `draft` adds to `trial`

    @abstractmethod
    def draft(self, size: int, index: int) -> Draft:
        """Sample `index` with a haystack of `size` units."""

    def trial(self, size: int) -> Draft:
        """The sample that the search for the largest haystack measures."""
        return self.draft(size, 0)

    def upper(self, length: int, estimate: float) -> int:
        """The largest size of the search, from an estimated number of tokens per unit."""
        return int(length / estimate * 3)

    def least(self, index: int) -> int:
        """Units of the smallest haystack that the official generator can make for sample `index`."""
        return 1

    def smallest(self, index: int) -> int:
        """Units of the smallest usable haystack, for lengths too short for the official generator."""
        return self.least(index)
