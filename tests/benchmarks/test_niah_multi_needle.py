"""Several needles in one context."""

from itertools import pairwise

import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from kvbench.benchmarks.niah import placement
from kvbench.benchmarks.niah.grid import seed_of
from kvbench.benchmarks.niah.number_needles import number_needles
from tests.support.niah import short, text_tokens


def test_questions_over_one_context_share_it_and_stand_side_by_side(embedded):
    samples = short("niah_multi").samples(embedded.tokenizer)
    contexts = [sample.prompt.removesuffix(sample.question) for sample in samples]
    names = [sample.meta["context"] for sample in samples]
    assert len(samples) == 16
    assert len(set(names)) == len(set(contexts)) == len(set(zip(names, contexts, strict=True))) == 4
    assert sum(a != b for a, b in pairwise(names)) == 3
    assert len({sample.question for sample in samples[:4]}) == 4
    assert [sample.meta["depth"] for sample in samples[:4]] == [0, 40, 75, 100]


def test_needles_of_one_context_lie_at_their_depths_between_sentences(embedded):
    depths = [0, 30, 60, 100]
    needles = [(depth, f"NEEDLE{depth}.") for depth in depths]
    text = text_tokens(embedded, 900)
    context = placement.at_sentence_ends(text, needles, embedded.tokenizer)
    plain = embedded.tokenizer.decode(text)
    assert context.split() != plain.split()
    assert [word for word in context.split() if "NEEDLE" not in word] == plain.split()
    for depth, needle in needles:
        before = context.partition(needle)[0].rstrip()
        assert not before or before[-1] in ".!?" or depth == 100
        assert len(before) / len(context) == pytest.approx(depth / 100, abs=0.06)


def test_needles_that_fall_on_one_place_keep_their_order(embedded):
    context = placement.at_sentence_ends(
        embedded.tokenizer("One. Two. Three")["input_ids"], [(90, "C."), (85, "B."), (10, "A.")], embedded.tokenizer
    )
    assert context == "A. One. Two. B. C. Three"


@given(seed=st.integers(0, 500), count=st.integers(2, 9))
def test_numbers_of_one_context_share_no_city_and_no_first_digit(seed, count):
    needles = number_needles(seed, count)
    assert needles == number_needles(seed, count)
    assert len({needle.city for needle in needles}) == len({needle.number[0] for needle in needles}) == count
    assert all(len(needle.number) == 7 and needle.number[0] != "0" for needle in needles)


def test_one_question_names_all_cities_in_the_order_of_their_depths(embedded):
    samples = short("niah_multi_at_once", "seeds=1").samples(embedded.tokenizer)
    needles = number_needles(seed_of(400, 0), 4)
    places = [samples[0].question.index(needle.city) for needle in needles]
    assert places == sorted(places)
    assert samples[0].answers == tuple(needle.number for needle in needles)
    places = [samples[0].prompt.index(needle.text) for needle in needles]
    assert places == sorted(places)
    assert samples[0].meta["depths"] == [0, 40, 75, 100]
    assert [sample.meta["length"] for sample in samples] == [400, 700]


def test_the_heatmap_of_one_question_has_a_cell_per_needle():
    record = {"setting": "full", "length": 400, "r_bytes": 1.0, "depths": [0, 50], "answers": ["1234567", "7654321"]}
    records = pd.DataFrame([record | {"prediction": text} for text in ("7654321, 12", "1234567 7654321")])
    heatmap = short("niah_multi_at_once").heatmap(records)
    assert heatmap.metric == "found"
    assert heatmap.cells["depth"].tolist() == [0, 50, 0, 50]
    assert [score["found"] for score in heatmap.cells["scores"]] == [0, 1, 1, 1]


def test_another_needles_number_earns_nothing(embedded):
    grid = short("niah_multi")
    first, second, *_ = grid.samples(embedded.tokenizer)
    assert grid.score(first, f"It is {first.answers[0]}.") == {"digits": 1, "exact": 1}
    assert grid.score(first, f"It is {second.answers[0]}.") == {"digits": 0, "exact": 0}
    assert grid.score(first, first.answers[0][:3]) == {"digits": pytest.approx(3 / 7), "exact": 0}


def test_the_share_of_numbers_found_at_once(embedded):
    grid = short("niah_multi_at_once")
    sample = grid.samples(embedded.tokenizer)[0]
    a, b, _, d = sample.answers
    assert grid.score(sample, ", ".join(sample.answers)) == {"found": 1, "digits": 1, "exact": 1}
    half = grid.score(sample, f"{d} and {a}, then {b[:2]}")
    assert half == {"found": 0.5, "digits": pytest.approx((2 + 2 / 7) / 4), "exact": 0}
    assert grid.score(sample, "") == {"found": 0, "digits": 0, "exact": 0}
