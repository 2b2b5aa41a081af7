"""Overrides that cannot be read, or mean something else than they say."""

import pytest

from kvbench.errors import UserError
from kvbench.utils.overrides import check_overrides

EXPERIMENTS = ("pyramidkv_table1", "pyramidkv_table2")


@pytest.mark.parametrize(
    "override, message",
    [
        ("method=[full,h2o", r"method=\[full,h2o cannot be read: \[ and \] do not match"),
        ("decode.compress={every: 8", "{ and } do not match"),
        ("model.path='/a b", "a quotation mark is not closed"),
        ("model.path=a;b#", "a value with blanks or signs stands in quotation marks"),
        (
            "method=full,h2o",
            r"has several values: 'method=\[full,h2o\]' puts them into one run, -m makes a run of each",
        ),
        ("benchmark.lengths=1,2", r"'benchmark.lengths=\[1,2\]' puts them into one run"),
        ("output_dir=a,b", "values: -m makes a run of each; a text with a comma .* marks: \"output_dir='a,b'\""),
        ("method=[snapkv,h2o,snapkv]", r"method=\[snapkv,h2o,snapkv\]: method 'snapkv' is named twice"),
        ("pyramidkv_table1", r"'pyramidkv_table1' is not KEY=VALUE: write \+experiment=pyramidkv_table1"),
        ("table1", "'table1' is not KEY=VALUE, such as ratio=0.2"),
        ("experiment=pyramidkv_table1", r"added with a plus: \+experiment=pyramidkv_table1"),
        ("experiment=pyramidkv_table3", "unknown experiment 'pyramidkv_table3'. Did you mean 'pyramidkv_table"),
    ],
)
def test_a_mistake_is_one_line_that_says_what_to_write(override, message):
    with pytest.raises(UserError, match=message):
        check_overrides(["ratio=0.2", override], EXPERIMENTS, several=False)


@pytest.mark.parametrize(
    "override",
    [
        *(
            "ratio=0.2",
            "~model",
            "+experiment=pyramidkv_table1",
            "experiment=null",
            "method=[full,h2o]",
            "model.path='/a b'",
        ),
        *("benchmark.depths=0 to 100 in 10", "decode.compress={every: 8}", "press_args={a: [1, 2]}", "method.a.b=null"),
    ],
)
def test_what_can_be_read_is_left_alone(override):
    check_overrides([override], EXPERIMENTS, several=False)


def test_a_sweep_has_several_values():
    check_overrides(["ratio=0.2,0.4", "shard=range(0,4)"])
