"""The evidence of a sample: the passages of its prompt in which an expected answer stands word for word."""

import re
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

AROUND = 160  # characters on either side of an answer
OF_ANSWER, IN_ALL = 3, 9  # at most so many places of one answer, and passages of a sample
LEAST = 3  # characters: the letter of a choice stands everywhere


def passages(text: str, answers: Sequence[str]) -> list[dict[str, Any]]:
    """Passages of `text` in order, each {"at": characters before it, "text": the passage}; places that overlap are one.

    An answer counts as a whole word or number, in upper or lower case; one of fewer than LEAST characters does not.
    """
    found: list[tuple[int, int]] = []
    for start, end in sorted(place for answer in dict.fromkeys(answers) for place in _places(text, answer)):
        start, end = _word_start(text, start - AROUND), _word_end(text, end + AROUND)
        if found and start <= found[-1][1]:
            found[-1] = (found[-1][0], max(end, found[-1][1]))
        else:
            found.append((start, end))
    return [{"at": start, "text": text[start:end]} for start, end in found[:IN_ALL]]


class Place(NamedTuple):
    start: int
    end: int


def _places(text: str, answer: str) -> Iterator[Place]:
    """The first places of an answer."""
    answer = answer.strip()
    if len(answer) < LEAST:
        return
    whole = re.compile(rf"(?<!\w){re.escape(answer)}(?!\w)", re.IGNORECASE)
    for number, match in enumerate(whole.finditer(text)):
        if number == OF_ANSWER:
            return
        yield Place(*match.span())


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
