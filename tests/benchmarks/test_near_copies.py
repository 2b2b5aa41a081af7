"""Copies of texts in published data, which are one unit of intervals."""

import pytest

from kvbench.benchmarks.base import text_unit
from kvbench.benchmarks.near_copies import text_units, units_of_tasks

LETTER = "".join(f"On day {day} the ferry left the harbour late. " for day in range(20))
REPORT = "".join(f"Line {line} of the report is about sheep. " for line in range(20))
NOTICE = "These pages are kept for a library. "


@pytest.mark.parametrize(
    "copy",
    [
        LETTER,
        LETTER.replace(" ", "  "),
        LETTER.replace("day 3 the ferry", "day 3 the [1] ferry"),
        LETTER + "This is the end of it.",
        LETTER[: len(LETTER) * 3 // 4],
    ],
)
def test_a_copy_has_the_unit_of_the_first_text(copy):
    first, report = text_unit(LETTER), text_unit(REPORT)
    assert text_units([LETTER, REPORT, copy, REPORT]) == [first, report, first, report]


def test_texts_that_share_a_notice_or_hold_a_short_text_are_no_copies():
    texts = [NOTICE + LETTER, NOTICE + REPORT, NOTICE, LETTER + REPORT]
    assert text_units(texts) == [text_unit(text) for text in texts]


def test_texts_without_a_sentence_are_units_of_their_own_unless_they_are_equal():
    assert text_units(["a; b", "c", "", "a; b"]) == [text_unit(text) for text in ("a; b", "c", "", "a; b")]


def test_books_are_told_apart_by_some_of_their_sentences():
    book = [f"On day {day} the ferry left the harbour late" for day in range(5000)]
    copied = [f"{line} at {number}" if number % 8 == 0 else line for number, line in enumerate(book)]
    sequel = [f"{line} at {number}" if number % 2 == 0 else line for number, line in enumerate(book)]
    texts = [". ".join(lines) for lines in (book, copied, sequel, [*book, *copied[:1000]])]
    first, later = text_unit(texts[0]), text_unit(texts[2])
    assert text_units(texts) == [first, first, later, first]


def test_a_copy_in_another_task_has_the_same_unit_and_random_contexts_share_sentences():
    copy = LETTER + "This is the end of it."
    contexts = {"summary": [REPORT, LETTER], "key": [LETTER, copy, LETTER], "question": [copy]}
    first = text_unit(LETTER)
    assert units_of_tasks(contexts, {"key"}) == {
        "summary": [text_unit(REPORT), first],
        "key": [first, text_unit(copy), first],
        "question": [first],
    }
