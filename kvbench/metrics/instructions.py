"""Whether an answer follows an instruction of a system message, in {0, 1} (benchmark=instructions)."""

import re
from collections.abc import Callable

_WORD = re.compile(r"[^\W_]+")  # without the marks of emphasis in "__amber__"


def begins(prediction: str, word: str) -> bool:
    """The first word is `word`, in any case."""
    return _words(prediction)[:1] == [word.casefold()]


def ends(prediction: str, word: str) -> bool:
    """The last word is `word`, in any case."""
    return _words(prediction)[-1:] == [word.casefold()]


def capitals(prediction: str, word: str) -> bool:
    """There are letters, and all are capitals."""
    return prediction.isupper()


def says(prediction: str, word: str) -> bool:
    """`word` is among the words, in any case."""
    return word.casefold() in _words(prediction)


def hides(prediction: str, word: str) -> bool:
    """`word` is not among the words, in any case."""
    return not says(prediction, word)


FOLLOWED: dict[str, Callable[[str, str], bool]] = {
    "opening": begins,
    "ending": ends,
    "capitals": capitals,
    "reply": says,
    "secret": hides,
}


def followed(instruction: str, prediction: str, word: str) -> float:
    """1 if the prediction follows the instruction, a name of FOLLOWED, with its word; else 0."""
    return float(FOLLOWED[instruction](prediction, word))


def _words(text: str) -> list[str]:
    return _WORD.findall(text.casefold())
