"""RULER's frequent words: coded words with counts of a zeta distribution; the answer is the three most frequent."""

import math
import string
from collections.abc import Iterator, Sequence
from random import Random

import numpy as np

from kvbench.benchmarks.ruler.fitting import Count, DoesNotFit
from kvbench.benchmarks.ruler.maker import Draft

_LETTERS = 6
_ANSWERS = 3  # words, after the dots
_ALPHA = 2.0
_ZETA = math.pi**2 / 6  # zeta(_ALPHA)


def coded(
    texts: dict[str, str], count: int, length: int, tokens: Count, new_tokens: int, seed: int
) -> Iterator[tuple[Draft, int]]:
    """`count` samples with their numbers of tokens, as from `fitting.fitted`, by this task's own search.

    The number of words grows until the text of the first vocabulary is too long, and shrinks for every sample with a
    text that is too long. Raises DoesNotFit, also where a text is too short to decide which words are the answer.
    """
    room = length - new_tokens
    step = room // 32
    stream = Random(seed)
    if step < 1 or room // 50 <= _ANSWERS:  # the dots and the words of the answer
        raise DoesNotFit

    vocabulary = _vocabulary(stream, room // 50, seed)
    most = room // _LETTERS
    while tokens(_draft(texts, vocabulary, most, seed).text) < room:
        most += step
    most -= step
    for _ in range(count):
        vocabulary = _vocabulary(stream, room // 50, seed)
        words = most
        while (total := tokens((draft := _draft(texts, vocabulary, words, seed)).text)) > room:
            words -= step
            if words <= 0:
                raise DoesNotFit
        if not _decided(_counts(words, len(vocabulary))):
            raise DoesNotFit
        yield draft, total + new_tokens


def _vocabulary(stream: Random, size: int, seed: int) -> list[str]:
    """Different random words by rank; the first is noise."""
    words = [_word(stream) for _ in range(size)]
    while len(set(words)) < size:
        words.append(_word(stream))
    words = sorted(set(words))
    Random(seed).shuffle(words)
    words[0] = "..."
    return words


def _word(stream: Random) -> str:
    return "".join(stream.choices(string.ascii_lowercase, k=_LETTERS))


def _counts(words: int, size: int) -> list[int]:
    """How often each word of a vocabulary of `size` is in a text of about `words` words, by rank."""
    ranks = np.arange(1, size + 1)
    counts: list[int] = (words * ranks**-_ALPHA / _ZETA).astype(int).tolist()
    return counts


def _decided(counts: Sequence[int]) -> bool:
    """Whether the three words of the answer are in the text, more often than any other word but the dots.

    Few words are left where a tokenizer of bytes or letters spends a short length on the instruction.
    """
    return counts[_ANSWERS] > (counts[_ANSWERS + 1] if len(counts) > _ANSWERS + 1 else 0)


def _draft(texts: dict[str, str], vocabulary: list[str], words: int, seed: int) -> Draft:
    counts = _counts(words, len(vocabulary))
    text = [word for word, times in zip(vocabulary, counts, strict=True) for _ in range(times)]
    Random(seed).shuffle(text)
    return Draft(
        texts["fwe"].format(context=" ".join(text), query=""), texts["fwe_prefix"], vocabulary[1 : _ANSWERS + 1]
    )
