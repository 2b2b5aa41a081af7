"""The evidence of a sample: the passages of its prompt that contain an expected answer word for word."""

import re
from collections.abc import Iterator, Sequence
from itertools import islice
from typing import Any, NamedTuple

AROUND = 160  # characters on either side of an answer
PLACES, PASSAGES = 3, 9  # the most places of one answer, and passages of a sample
SHORTEST = 3  # characters of an answer: the letter of a choice is everywhere


def passages(text: str, answers: Sequence[str]) -> list[dict[str, Any]]:
    """Passages of `text` in order, each {"at": characters before it, "text": the passage}; overlapping ones are joined.

    An answer counts as a whole word or number, in upper or lower case; one of fewer than SHORTEST characters does not.
    """
    spans: list[tuple[int, int]] = []
    for start, end in sorted(place for answer in dict.fromkeys(answers) for place in _places(text, answer)):
        start, end = _word_start(text, start - AROUND), _word_end(text, end + AROUND)
        if spans and start <= spans[-1][1]:
            spans[-1] = (spans[-1][0], max(end, spans[-1][1]))
        else:
            spans.append((start, end))
    return [{"at": start, "text": text[start:end]} for start, end in spans[:PASSAGES]]


class Place(NamedTuple):
    start: int
    end: int


def _places(text: str, answer: str) -> Iterator[Place]:
    """The first PLACES of an answer."""
    answer = answer.strip()
    if len(answer) >= SHORTEST:
        word = re.compile(rf"(?<!\w){re.escape(answer)}(?!\w)", re.IGNORECASE)
        yield from (Place(*match.span()) for match in islice(word.finditer(text), PLACES))


def _word_start(text: str, at: int) -> int:
    """The start of the first whole word after `at`; of a text without spaces, `at` itself."""
    if at <= 0:
        return 0
    gap = text.find(" ", at, at + AROUND // 4)
    return at if gap < 0 else gap + 1


def _word_end(text: str, at: int) -> int:
    if at >= len(text):
        return len(text)
    gap = text.rfind(" ", at - AROUND // 4, at)
    return at if gap < 0 else gap
