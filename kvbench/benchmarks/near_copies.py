"""Texts that are copies of each other but for blanks, a few sentences or an end, as published data have them."""

import re
from collections import defaultdict
from collections.abc import Sequence

from kvbench.benchmarks.base import text_unit

# The share of the sentences of two texts together that both have: in LongBench, copies have at least 0.66, others 0.46.
ALIKE = 0.6
_ENDS = re.compile(r"[.!?。！？；;\n]+")
_SHORTEST = 8  # characters of a sentence that tells texts apart


def text_units(texts: Sequence[str]) -> list[str]:
    """The `unit` of each text: copies have that of the first of them.

    A text is a copy of an earlier one where they share most sentences, whose blanks do not count.
    """
    units, first_with = list(map(text_unit, texts)), defaultdict[str, list[int]](list)
    sentences = list(map(_sentences, texts))
    for number, of_text in enumerate(sentences):
        candidates = {other for sentence in of_text for other in first_with[sentence]}
        copied = next((other for other in sorted(candidates) if _alike(of_text, sentences[other])), None)
        if copied is not None:
            units[number] = units[copied]
            continue
        for sentence in of_text:
            first_with[sentence].append(number)
    return units


def _sentences(text: str) -> frozenset[str]:
    whole = ("".join(part.split()) for part in _ENDS.split(text))
    return frozenset(sentence for sentence in whole if len(sentence) >= _SHORTEST)


def _alike(one: frozenset[str], other: frozenset[str]) -> bool:
    return len(one & other) >= ALIKE * len(one | other)
