"""Lists of lengths and depths."""

import numpy as np
import pytest

from kvbench.benchmarks import NeedleInAHaystack
from kvbench.benchmarks.niah.ranges import integers, numbers
from kvbench.errors import UserError
from tests.support.niah import TESTERS, benchmark


def test_ranges_are_those_of_the_testers():
    kamradt, pyramidkv, mistral = (benchmark(name) for name in TESTERS[:3])
    assert kamradt.lengths == np.round(np.linspace(1000, 16000, 35)).astype(int).tolist()
    assert kamradt.depths == np.round(np.linspace(0, 100, 35)).astype(int).tolist()
    assert pyramidkv.lengths == np.arange(1000, 8001, 100).tolist()
    assert mistral.lengths == np.arange(400, 32001, 400).tolist()
    assert pyramidkv.depths == mistral.depths == [0, 11, 22, 33, 44, 56, 67, 78, 89, 100]
    inner = 100 / (1 + np.exp(-0.1 * (np.linspace(0, 100, 35)[1:-1] - 50)))
    assert benchmark("niah_kamradt", "depths=0 to 100 in 35 sigmoid").depths == [0, *np.round(inner, 3), 100]


@pytest.mark.parametrize(
    "value, meant",
    [
        ([1, 2.5, 1], [1, 2.5]),
        (512, [512]),
        ("1 to 2 by 0.25", [1, 1.25, 1.5, 1.75, 2]),
        ("0 to 10 by 4", [0, 4, 8]),
        ("0 to 3 in 7", [0, 0.5, 1, 1.5, 2, 2.5, 3]),
    ],
)
def test_a_list_of_numbers_in_one_line(value, meant):
    assert numbers(value) == meant


def test_testers_that_round_their_depths_have_whole_ones_and_others_those_of_linspace():
    spread = np.linspace(0, 100, 35).tolist()
    assert numbers("0 to 100 in 35") == spread and spread[1] == 100 / 34
    for name in ("niah", "passkey", "niah_kvpress"):
        assert benchmark(name, "depths=0 to 100 in 35").depths == spread
    for name in ("niah_kamradt", "niah_pyramidkv"):
        assert benchmark(name, "depths=0 to 100 in 35").depths == np.round(spread).astype(int).tolist()
    assert benchmark("niah", "lengths=400 to 1000 in 7", "depths=0 to 3 in 7").lengths[1] == 500
    assert integers("0 to 3 in 7") == [0, 1, 2, 3]  # rounded, each once


@pytest.mark.parametrize(
    "value, message",
    [
        ("1000 - 8000", "must be a list of numbers, 'A to B by STEP'"),
        ("1000 to 8000", "must be a list of numbers"),
        ("1.2.3 to 8000 by 1", "must be a list of numbers"),
        ("8 to 1 by 1", "A < B"),
        ("1 to 8 by 0", "STEP > 0"),
        ("1 to 8 in 1", "COUNT > 1"),
        ([], "must be a list of numbers"),
        (["a"], "must be a list of numbers"),
        ([True], "must be a list of numbers"),
        (None, "must be a list of numbers"),
    ],
)
def test_a_bad_list_of_numbers_is_named_with_the_forms_that_are_right(value, message):
    with pytest.raises(UserError, match=message) as error:
        NeedleInAHaystack(lengths=value, depths=[0])
    assert "benchmark.lengths=" in str(error.value)
