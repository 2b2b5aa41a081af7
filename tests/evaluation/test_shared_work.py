"""What settings of one prompt share, by which the cost of experiments and of runs is estimated."""

import pytest

from kvbench.configuration import configured
from kvbench.evaluation.settings import build_settings
from kvbench.evaluation.shared_work import shared_work


def settings(*names):
    methods = configured([f"method=[{','.join(names)}]"]).method
    return build_settings({name: methods[name] for name in names}, None, 50)


@pytest.mark.parametrize(
    ("batch", "passes"), [("auto", [1, 3]), ("all", [4]), ("2", [1, 2, 1]), ("3", [1, 3]), ("1", [1, 1, 1, 1])]
)
def test_settings_share_a_prefill_and_decode_in_as_few_passes_as_batches_allow(batch, passes):
    some = settings("full", "snapkv", "kivi", "streaming_llm")  # rounding changes what KIVI stores: alone unless all
    (work,) = shared_work(some, 100, 4, batch)
    assert work.passes == passes
    assert sorted(one.label for one in work.settings) == sorted(one.label for one in some)


def test_another_prefill_is_another_work():
    works = shared_work(settings("full", "pyramidinfer"), 100, 4, "auto")
    assert [[one.name for one in work.settings] for work in works] == [["full"], ["pyramidinfer"]]


def test_settings_measured_one_by_one_have_a_pass_each():
    (work,) = shared_work(settings("full", "snapkv"), 100, 4, "all", one_by_one=True)
    assert (work.passes, work.at_once) == ([1, 1], 0)
