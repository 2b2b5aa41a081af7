"""NoLiMa's samples: needles of the set at places of the books, on data of our own of the same form."""

import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from kvbench.benchmarks import NoLiMa
from kvbench.benchmarks.nolima.book import Book
from kvbench.benchmarks.nolima.needles import read
from kvbench.errors import UserError
from kvbench.evaluation.prompts import tokenise
from tests.support.needs import official
from tests.support.published_prompts import NEEDLES, nolima_data

OFFICIAL, needs_official = official("nolima/run_tests.py")


@pytest.fixture
def data(tmp_path, monkeypatch) -> Path:
    return nolima_data(tmp_path, monkeypatch)


@pytest.fixture
def made(data):
    def make(needles: list[dict] | None = None, **changes) -> NoLiMa:
        if needles is not None:
            (data / "needlesets" / "needle_set.json").write_text(json.dumps(needles))
        config = {"data_dir": str(data), "lengths": [100], "depths": [0, 50, 100]}
        return NoLiMa(**(config | {"prompts_file": str(data / "run_tests.py")} | changes))

    return make


def test_there_is_a_sample_for_each_length_book_question_and_depth(made, embedded):
    samples = made(lengths=[100, 200]).samples(embedded.tokenizer)
    assert len(samples) == len({sample.id for sample in samples}) == 2 * 2 * 3 * 3
    assert samples[0].id == "0101onehop_t1_onehop-rand_book_1-100-0"
    assert {sample.meta["test"] for sample in samples} == {
        *("0101onehop_t1_onehop", "0101onehop_t2_onehop", "0202twohop_t1_twohop"),
    }
    assert samples[0].max_new_tokens == 192 and samples[0].meta["task"] == "100"
    assert {sample.unit for sample in samples} == {"book rand_book_1", "book rand_book_2"}


def test_a_prompt_has_the_needle_after_a_line_of_the_book_and_the_question_last(made, embedded):
    for sample in made().samples(embedded.tokenizer):
        name = sample.answers[0]
        before, after = sample.prompt.split(sample.question)
        assert after == "" and sample.question.startswith("\n\nNow answer: Wh")
        if sample.meta["hop"] == "onehop":
            place = sample.meta["test"].split("_")[1]
            town = {"t1": "Kiel", "t2": "Bern"}[place]
            assert f" {name} mends shoes in {town}.\n" in before and f"cobbler in {town}?" in sample.question
        else:
            assert sample.answers == ("mill", "wheel") and " The mill by the lake is shut.\n" in before
        head, _, tail = before.removeprefix("Read the book.\n\n").partition(
            " The mill" if name == "mill" else f" {name}"
        )
        assert sample.meta["depth"] > 0 or head == ""
        assert sample.meta["depth"] < 100 or tail.count("\n") == 1


def test_depths_are_those_of_the_official_code(made, embedded):
    """np.linspace, not rounded: each in a window of its own."""
    samples = made(depths="0 to 100 in 35", books=1).samples(embedded.tokenizer)[:35]
    assert [sample.meta["depth"] for sample in samples] == np.linspace(0, 100, 35).tolist()
    assert len({sample.id for sample in samples}) == 35


def test_of_sets_that_ask_to_reason_the_last_line_can_be_scored(made, embedded):
    by_metric = {name: made(metric=name) for name in ("contains", "lastline_contains")}
    sample = made().samples(embedded.tokenizer)[-1]
    assert sample.answers == ("mill", "wheel")
    for prediction, scores in {"mill\nno": (1, 0), "no\nthe wheel \n": (1, 1), "no": (0, 0), "": (0, 0)}.items():
        assert tuple(each.score(sample, prediction)["score"] for each in by_metric.values()) == scores


def test_of_several_places_in_a_question_the_last_is_filled_as_in_the_official_code(made, embedded):
    sample = made().samples(embedded.tokenizer)[-1]
    assert "What is closed by the lake, a {1}?" in sample.question


def test_names_are_drawn_by_the_entrys_number_and_the_books(made, embedded):
    names = {}
    for sample in made().samples(embedded.tokenizer):
        names.setdefault((sample.meta["test"], sample.meta["book"]), []).append(sample.answers[0])
    drawn = np.random.RandomState(42 + 101 + 1)
    expected = [str(drawn.choice(["Mira", "Tom", "Ada", "Lin"])) for _ in range(3)]
    assert names["0101onehop_t2_onehop", "rand_book_2"] == expected


def test_a_window_has_its_length_and_the_needles_place_at_its_depth(data, embedded):
    book = Book(data / "haystack" / "rand_shuffle" / "rand_book_1.txt", embedded.tokenizer)
    text = book.path.read_text()
    for depth in (0, 0.25, 0.5, 1):
        before, after = book.around(300, depth)
        joined = f"{before}\n{after}" if before else after
        assert joined.strip("\n") in text
        tokens = len(embedded.tokenizer(before + after, add_special_tokens=False)["input_ids"])
        assert 285 <= tokens <= 300
        share = len(before) / len(before + after)
        assert abs(share - depth) < 0.08
    with pytest.raises(UserError, match=r"rand_book_1.txt has \d+ tokens, too few for a needle at 50% of 100000"):
        book.around(100_000, 0.5)


def test_direct_questions_are_left_out_but_in_a_set_of_nothing_else(data, tmp_path):
    file = tmp_path / "only.json"
    file.write_text(json.dumps([NEEDLES[0] | {"questions": {"direct": "Who mends shoes in {1}?"}}]))
    assert {case.hop for case in read(file)} == {"direct"}
    assert {case.hop for case in read(data / "needlesets" / "needle_set.json")} == {"onehop", "twohop"}


def test_a_set_may_have_prompts_of_its_own(made, embedded):
    own = made([NEEDLES[0] | {"task_template": "{haystack}\nThink. {question}"}], prompts_file="/nowhere")
    sample = own.samples(embedded.tokenizer)[0]
    assert sample.question == "\nThink. Who is a cobbler in Kiel?"


def test_a_question_before_the_book_cannot_be_hidden(made, embedded):
    template = "{question}\n{haystack}\nAnswer: {question}"
    own = made([NEEDLES[0] | {"task_template": template}], prompts_file="/nowhere")
    sample = own.samples(embedded.tokenizer)[0]
    assert sample.prompt.startswith("Who is a cobbler in Kiel?\n") and sample.prompt.endswith("cobbler in Kiel?")
    with pytest.raises(UserError, match="does not separate its question from its context"):
        tokenise(embedded, sample, "hidden")


def test_the_system_message_stands_before_the_prompt(made, embedded):
    (first, *_), (other, *_) = (made(system=text).samples(embedded.tokenizer) for text in ("Be kind.", ""))
    assert first.history == (("system", "Be kind."),) and other.history == ()


def test_a_seed_shuffles_within_each_length(made, embedded):
    official, one, again = ([s.id for s in made(seed=seed).samples(embedded.tokenizer)] for seed in (None, 1, 1))
    assert one == again != official and sorted(one) == sorted(official)


@needs_official
def test_the_official_prompt_is_proven(monkeypatch, made):
    monkeypatch.undo()
    assert made(prompts_file=str(OFFICIAL)).template.count("{haystack}") == 1


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"data_dir": None}, "set benchmark.data_dir=FOLDER to .* hf download amodaresi/NoLiMa"),
        ({"data_dir": "/nowhere"}, "/nowhere does not have NoLiMa's needlesets/needle_set.json: hf download"),
        ({"needle_set": "needle_set_hard"}, "does not have NoLiMa's needlesets/needle_set_hard.json"),
        ({"books": 0}, "benchmark.books=0 must be an integer of at least 1"),
        ({"depths": [101]}, "benchmark.depths=101 must be a number from 0 to 100"),
        ({"prompts_file": __file__}, "test_nolima.py has no DEFAULT_TASK_TEMPLATE: it is not NoLiMa's"),
    ],
)
def test_a_wrong_value_is_one_line(made, changes, message):
    with pytest.raises(UserError, match=message):
        made(**changes)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"character_set": []}, "entry 1: ValueError test 't1' has no character_set"),
        ({"needle": "A door."}, "entry 1: ValueError test 't1' has no gold_answers"),
        ({"tests": {"t1": {}}}, "entry 1: KeyError 'input_args'"),
        ({"id": "first"}, "entry 1: ValueError invalid literal"),
        ({"distractors": {}}, "entry 1: ValueError sets with distractors are not supported"),
        ({"needle": None}, "row 1: field 'needle' is null"),
    ],
)
def test_a_fault_in_the_needle_set_is_named(made, changes, message):
    with pytest.raises(UserError, match=f"needle_set.json, {message}"):
        made([NEEDLES[0] | changes])


def test_the_table_has_the_base_score_and_the_effective_length_where_all_short_lengths_are_there(made):
    scores = {250: (1, 0), 500: (1, 1), 1000: (0, 1), 2000: (1, 0), 4000: (0, 0)}
    records = pd.DataFrame(
        [
            {"task": str(length), "length": length, "setting": "full", "sample": f"{test}-{length}", "test": test}
            | {"scores": {"score": float(value)}}
            for length, values in scores.items()
            for test, value in zip("ab", values, strict=True)
        ]
    )
    table = made().breakdown(records)
    assert table["task"].tolist() == ["250", "500", "1000", "2000", "4000", "base score", "effective length"]
    assert table["full"].tolist()[:6] == [50, 100, 50, 50, 0, 100]
    assert np.isnan(table["full"].iloc[-1])
    short = made().breakdown(records[records.length > 250])
    assert short["task"].tolist() == ["500", "1000", "2000", "4000"]
    assert made().longest == 100 + 300 + 192
