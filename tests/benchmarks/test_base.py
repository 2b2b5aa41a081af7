"""What a benchmark of one's own returns, as the records of a run have it."""

import re
from decimal import Decimal

import numpy as np
import pytest
import torch

from kvbench.benchmarks import Sample
from kvbench.benchmarks.base import Turn, data_hash
from kvbench.errors import UserError
from kvbench.evaluation.check_samples import check_turns
from kvbench.evaluation.prompts import together
from tests.support.given import Given

SAMPLE = Sample("one", "Which?", ("this",), 4)


class Scored(Given):
    """A benchmark whose score is `value`."""

    def score(self, sample, prediction):
        return self.value


def scores(value: object) -> dict[str, float]:
    benchmark = Scored([SAMPLE])
    benchmark.value = value
    return benchmark.scores(SAMPLE, "this")


NUMBERS = [np.float32(1), np.int64(1), np.bool_(True), True, 1, torch.tensor(1.0), Decimal(1), 1 + 2**-52, 1.0000001]


@pytest.mark.parametrize("value", NUMBERS)
def test_a_score_may_be_any_number_or_a_truth_value(value):
    """A record that JSON cannot hold would end the run after its first answer."""
    made = scores({"exact": value})
    assert [*map(type, made.values())] == [float] and made == {"exact": 1.0}


def test_a_score_that_rounding_put_below_0_is_0():
    assert scores({"exact": -1e-17}) == {"exact": 0.0}


@pytest.mark.parametrize(
    "value, said",
    [
        ({"exact": 57.0}, "exact=57: a number from 0 to 1 is needed"),  # per cent
        ({"exact": 1.0, "length": 12}, "length=12: a number from 0 to 1 is needed"),
        ({"exact": -0.5}, "exact=-0.5: a number from 0 to 1 is needed"),
        ({"exact": 1.001}, "exact=1.001: a number from 0 to 1 is needed"),
        ({"exact": "1"}, "exact='1': a number from 0 to 1 is needed"),
        ({"exact": None}, "exact=None: a number from 0 to 1 is needed"),
        ({"exact": torch.zeros(2)}, "exact=tensor([0., 0.]): a number from 0 to 1 is needed"),
        ({"exakt": 1.0}, "exakt, without 'exact', the first of its metrics"),
        ({"exact": 1.0, "recal": 0.5}, "recal=0.5, which is none of its metrics"),  # the column of "recall" was empty
        (1.0, "1.0: a number for each name of its metrics is needed"),
    ],
)
def test_scores_that_no_table_could_show_are_one_line(value, said):
    """Intervals of scores end at 0 and 1, and a table without its first metric has no scores at all."""
    with pytest.raises(UserError) as error:
        scores(value)
    assert str(error.value) == f"Scored.score returned {said}"


def test_a_sample_without_answers_has_no_scores():
    assert scores({}) == {}


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("answers", "1234", "answers='1234' must be a tuple of texts, of one as (text,)"),
        ("answers", None, "answers=None must be a tuple of texts"),
        ("answers", (1234,), "answers=(1234,) must be a tuple of texts"),
        ("max_new_tokens", 0, "max_new_tokens=0 must be an integer of at least 1"),
        ("max_new_tokens", -3, "max_new_tokens=-3 must be an integer of at least 1"),
        ("max_new_tokens", 4.5, "max_new_tokens=4.5 must be an integer of at least 1"),
        ("max_new_tokens", "8", "max_new_tokens='8' must be an integer of at least 1"),
        ("prompt", None, "prompt=None must be a text"),
        ("question", None, "question=None must be a text"),
        ("prefix", None, "prefix=None must be a text"),
        ("context_id", 5, "context_id=5 must be a text"),
        ("unit", 5, "unit=5 must be a text"),
        ("spans", "abc", "spans='abc' must be a tuple of pairs of texts"),
        ("spans", (("a", "b", "c"),), "spans=(('a', 'b', 'c'),) must be a tuple of pairs of texts"),
        ("history", (("user", None),), "history=(('user', None),) must be a tuple of pairs of texts"),
        ("turns", ("And then?",), "turns=('And then?',) must be a tuple of Turns"),
        ("meta", None, "meta=None must be a dict"),
        ("meta", {1: 2}, "1: 2 of its meta must be a name and what JSON holds"),
        ("meta", {"depth": np.int64(50)}, "'depth': np.int64(50) of its meta must be"),
        ("meta", {"depth": np.float32(0.5)}, "'depth': np.float32(0.5) of its meta must be"),
        ("meta", {"words": ["a", {"b"}]}, "'words': ['a', {'b'}] of its meta must be"),
        ("meta", {"task": {"name": (1, 2)}}, "'task': {'name': (1, 2)} of its meta must be"),
    ],
)
def test_a_field_of_another_type_is_refused_where_the_sample_is_made(field, value, said):
    given = {"id": "a", "prompt": "What is the code?", "answers": ("1234",), "max_new_tokens": 8}
    with pytest.raises(ValueError, match=f"^sample 'a': {re.escape(said)}"):
        Sample(**{**given, field: value})


def test_a_sample_may_have_lists_and_integers_of_numpy():
    """They were tracebacks: in the hash of the samples, and where samples are grouped by what they share."""
    turn = Turn("And then?", "5678", np.int64(4))
    given = {"history": [["system", "Be brief."]], "spans": [["code", "1234"]], "turns": [turn], "own_answers": True}
    sample = Sample("a", "The code is 1234. What is it?", ["1234"], np.int64(8), "What is it?", **given)
    same = {
        "history": (("system", "Be brief."),),
        "spans": (("code", "1234"),),
        "turns": (Turn("And then?", "5678", 4),),
    }
    plain = Sample("a", sample.prompt, ("1234",), 8, "What is it?", own_answers=True, **same)
    assert sample == plain and data_hash([sample]) == data_hash([plain])
    check_turns([sample], [], distance=False)
    assert [len(group) for group in together([sample, plain], "hidden")] == [2]
