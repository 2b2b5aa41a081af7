"""Windows of a book with a place for the needle, as NoLiMa's data/book_haystack.py cuts them."""

from functools import cached_property
from pathlib import Path
from typing import NamedTuple

import numpy as np

from kvbench.errors import UserError
from kvbench.utils.regular_files import read_text
from kvbench.utils.tokenizer import Tokenizer


class Around(NamedTuple):
    """The texts on both sides of a needle."""

    before: str
    after: str


class Book:
    """A book's text as tokens of a model."""

    def __init__(self, path: Path, tokenizer: Tokenizer):
        self.path, self.tokenizer = path, tokenizer
        try:
            self.text = read_text(path)
        except (OSError, UnicodeDecodeError) as error:
            raise UserError(f"{path} cannot be read as UTF-8: {error}") from error
        self.ids = tokenizer(self.text, add_special_tokens=False, verbose=False)["input_ids"]

    def around(self, length: int, depth: float) -> Around:
        """The texts before and after a needle at `depth` (0 to 1) of `length` tokens, without the needle's.

        The needle replaces the first line end at depth · (length + 1) tokens or later, or begins the book; the window
        is chosen so that this place is at its depth. Raises UserError where the book is too short.
        """
        delta = self._line_ends / (length + 1) - depth
        delta[delta < 0] = np.inf
        place = int(self._line_ends[np.argmin(delta)])
        start = place - int(np.round(length * depth))
        if start < 0 or start + length > len(self.ids):
            raise UserError(f"{self.path} has {len(self.ids)} tokens, too few for a needle at {depth:.0%} of {length}")
        before = self.tokenizer.decode(self.ids[start : place + 1])
        after = self.tokenizer.decode(self.ids[place + 1 : start + length])
        return Around(before[: max(before.rfind("\n"), 0)], after)

    @cached_property
    def _line_ends(self) -> np.ndarray:
        """Numbers of the tokens at which a needle may be placed: the first, and all with a line end."""
        ending = {token for token in set(self.ids) if "\n" in self.tokenizer.decode([token])}
        return np.array([0, *(i for i, token in enumerate(self.ids) if token in ending)])
