"""Which rows of a task are about one story of bAbI: a story has several questions, each behind more of its facts."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

# A sentence of a few words in one line, as all facts are; books have such sentences, too.
_SENTENCE = re.compile(r"[A-Z][a-z]+(?: [^\s.?!;:\"”“_—]+){1,13}\.")
_TOLD = 2  # the facts by which a story is known: its first question has as many before it
_COMMON = 0.04  # of repeated sentences, those that begin with a word of facts: a name, or "The"


def stories(texts: Iterable[Mapping[int, str]]) -> dict[int, int]:
    """For each number of a row, the smallest number of a row about the same story.

    `texts` has the texts of a task's rows by their numbers, at one length after another. A row is about the same story
    at every length. Two rows are about the same story if their texts at some length begin with the same facts. A
    sentence counts as a fact, and not as one of the book around it, if several rows have it and if its first word is
    common among such sentences. Where a book has such a sentence before the facts, the story is missed, and its rows
    count as independent.
    """
    first_of: dict[int, int] = {}
    for rows in texts:
        numbers_of: dict[tuple[str, ...], int] = {}
        for number, facts in zip(rows, _first_facts(list(rows.values())), strict=True):
            story = first_of.setdefault(number, number)
            if len(facts) == _TOLD:
                same = first_of[numbers_of.setdefault(facts, number)]
                low, high = sorted((story, same))
                first_of = {row: low if first == high else first for row, first in first_of.items()}
    return first_of


def _first_facts(texts: Sequence[str]) -> list[tuple[str, ...]]:
    """The first facts of each text, at most `_TOLD`."""
    sentences = [_SENTENCE.findall(text) for text in texts]
    rows_with = Counter(sentence for of_text in sentences for sentence in set(of_text))
    repeated = [[sentence for sentence in of_text if rows_with[sentence] > 1] for of_text in sentences]
    beginnings = Counter(sentence.partition(" ")[0] for of_text in repeated for sentence in of_text)
    enough = _COMMON * beginnings.total()
    return [
        tuple([sentence for sentence in of_text if beginnings[sentence.partition(" ")[0]] >= enough][:_TOLD])
        for of_text in repeated
    ]
