"""Where an expected answer stands in a prompt."""

import pytest

from kvbench.benchmarks import Sample
from kvbench.records.evidence import AROUND, PASSAGES, PLACES, passages
from kvbench.records.samples import read_samples, row_of, write_samples

FILL = "some words of a long text. " * 40


def test_a_passage_has_the_answer_whole_words_around_it_and_its_place():
    text = f"{FILL}The secret number of Riga is 8056020. {FILL}"
    (found,) = passages(text, ["8056020"])
    assert "The secret number of Riga is 8056020." in found["text"] and len(found["text"]) <= 2 * AROUND + 7
    assert text[found["at"] :].startswith(found["text"])
    assert text[found["at"] - 1] == " " and found["text"].split()[-1] in FILL.split()


@pytest.mark.parametrize(
    ("text", "answers"),
    [
        ("number 18056020 and 80560201", ["8056020"]),
        ("A or B", ["B"]),
        ("nothing", ["8056020"]),
        ("", ["word"]),
        ("a", []),
    ],
)
def test_parts_of_words_single_letters_and_what_is_not_there_are_no_evidence(text, answers):
    assert passages(text, answers) == []


def test_case_does_not_matter_and_places_that_overlap_are_one_passage():
    assert passages("Paris? PARIS! paris.", ["paris"]) == [{"at": 0, "text": "Paris? PARIS! paris."}]


def test_many_places_of_one_answer_leave_room_for_the_others():
    text = f"Oslo {FILL}" * 9 + f"Riga {FILL}"
    found = passages(text, ["Oslo", "Riga"])
    assert [("Oslo" in one["text"], "Riga" in one["text"]) for one in found] == [(True, False)] * PLACES + [
        (False, True)
    ]
    assert len(passages(text, [f"city{i}" for i in range(20)])) == 0
    many = "".join(f"city{i} {FILL}" for i in range(20))
    assert len(passages(many, [f"city{i}" for i in range(20)])) == PASSAGES


def test_a_text_without_spaces_is_cut_anywhere():
    (found,) = passages("市" * 500 + " Oslo " + "市" * 500, ["Oslo"])
    assert len(found["text"]) == 2 * AROUND + 4


def test_the_row_of_a_sample_has_the_evidence_before_its_question_and_is_read_back(tmp_path):
    sample = Sample("a", f"{FILL}It is Oslo. Is it Oslo?", ("Oslo",), 5, question="Is it Oslo?")
    (found,) = row_of(sample)["evidence"]
    assert found["text"].count("Oslo") == 1
    write_samples(tmp_path, [sample])
    assert read_samples(tmp_path)["a"]["evidence"] == [found]
