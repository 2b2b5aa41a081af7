"""Faults of samples are found before the first is run."""

from dataclasses import replace

import pytest

from kvbench.benchmarks import PassKey, Sample, Turn
from kvbench.errors import UserError
from kvbench.evaluation.check_samples import check_samples, check_turns


def test_two_samples_with_one_id_are_refused(embedded):
    """Records are kept by it: the second would have the first one's record, and none of its own."""
    benchmark = PassKey(lengths=[300], depths=[0, 100])
    first, second = benchmark.samples(embedded.tokenizer)
    check_samples(embedded, benchmark, [first, second], "visible")
    with pytest.raises(UserError) as error:
        check_samples(embedded, benchmark, [first, second, replace(second, id=first.id)], "visible")
    assert str(error.value) == f"2 samples of passkey have the id {first.id!r}: each needs one of its own"


@pytest.mark.parametrize("name", [3, None, ["a"]])
def test_an_id_that_is_no_text_is_refused(name, embedded):
    """The schema of records refuses it only after the first answer."""
    benchmark = PassKey(lengths=[300], depths=[0])
    (sample,) = benchmark.samples(embedded.tokenizer)
    with pytest.raises(UserError) as error:
        check_samples(embedded, benchmark, [replace(sample, id=name)], "visible")
    assert str(error.value) == f"a sample of passkey has the id {name!r}: it must be a text"


def test_an_own_answer_has_the_limit_of_its_own_sample():
    """One answer is decoded for both: by the default of a Turn it would have one token, whatever its sample allows."""
    first = Sample("c:1", "When?", ("x",), 6, own_answers=True)
    second = replace(first, id="c:2", turns=(Turn("Where?", max_new_tokens=2),))
    with pytest.raises(ValueError, match="the model's own answer before a turn needs its max_new_tokens"):
        replace(second, turns=(Turn("Where?"),))
    with pytest.raises(UserError) as error:
        check_turns([first, second], [], False)
    assert str(error.value) == (
        "sample 'c:1' has max_new_tokens=6, but sample 'c:2', which continues from its answer, has a turn with "
        "max_new_tokens=2: give both the same"
    )
    check_turns([second], [], False)
    check_turns([replace(sample, own_answers=False) for sample in (first, second)], [], False)
