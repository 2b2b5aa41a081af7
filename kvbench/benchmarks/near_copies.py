"""Texts that are copies of each other but for blanks, a few sentences or an end, as published data have them."""

import hashlib
import heapq
import re
from collections import defaultdict
from collections.abc import Container, Iterable, Mapping, Sequence
from itertools import islice

from kvbench.benchmarks.base import text_unit

# The share of the sentences of two texts together that both have: in LongBench, copies have at least 0.66, others 0.46.
ALIKE = 0.6
# Books have hundreds of thousands of sentences. These many tell the share of which both have to 0.015 (one standard
# deviation, at a share of 0.6); of shorter texts it is exact.
_COMPARED = 1024
_ENDS = re.compile(r"[.!?。！？；;\n]+")
_SHORTEST = 8  # characters of a sentence that tells texts apart


def text_units(texts: Sequence[str]) -> list[str]:
    """The `unit` of each text: copies have that of the first of them.

    A text is a copy of an earlier one where they share most sentences, whose blanks do not count.
    """
    names = list(map(text_unit, texts))
    units, sketches, first_with = dict[str, str](), dict[str, frozenset[int]](), defaultdict[int, list[str]](list)
    for name, text in zip(names, texts, strict=True):
        if name in units:
            continue
        sketch = _sketch(text)
        candidates = {other for sentence in sketch for other in first_with[sentence]}
        copied = (other for other in sketches if other in candidates and _alike(sketch, sketches[other]))
        units[name] = next(copied, name)
        if units[name] == name:
            sketches[name] = sketch
            for sentence in sketch:
                first_with[sentence].append(name)
    return [units[name] for name in names]


def units_of_tasks(contexts: Mapping[str, Sequence[str]], random: Container[str]) -> dict[str, list[str]]:
    """The `unit` of each context of each task: copies are one unit in all tasks.

    random   tasks of contexts that are drawn at random: only equal ones are one unit
    """
    texts = [context for task, of_task in contexts.items() if task not in random for context in of_task]
    units = iter(text_units(texts))
    return {
        task: list(map(text_unit, of_task)) if task in random else list(islice(units, len(of_task)))
        for task, of_task in contexts.items()
    }


def _sketch(text: str) -> frozenset[int]:
    """Those of the text's sentences that hash to the smallest numbers: the same ones in every text that has them.

    Source: Broder 1997, On the resemblance and containment of documents.
    """
    sentences = {"".join(part.split()) for part in _ENDS.split(text)}
    return frozenset(_smallest(_hashed(sentence) for sentence in sentences if len(sentence) >= _SHORTEST))


def _alike(one: frozenset[int], other: frozenset[int]) -> bool:
    either = _smallest(one | other)
    return len(one & other & set(either)) >= ALIKE * len(either)


def _smallest(numbers: Iterable[int]) -> list[int]:
    return heapq.nsmallest(_COMPARED, numbers)


def _hashed(sentence: str) -> int:
    return int.from_bytes(hashlib.blake2b(sentence.encode(), digest_size=8).digest())
