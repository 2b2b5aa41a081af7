"""Faults of samples are found before the first is run."""

from dataclasses import replace

import pytest

from kvbench.benchmarks import PassKey
from kvbench.errors import UserError
from kvbench.evaluation.check_samples import check_samples


def test_two_samples_with_one_id_are_refused(embedded):
    """Records are kept by it: the second would have the first one's record, and none of its own."""
    benchmark = PassKey(lengths=[300], depths=[0, 100])
    first, second = benchmark.samples(embedded.tokenizer)
    check_samples(embedded, benchmark, [first, second], "visible")
    with pytest.raises(UserError) as error:
        check_samples(embedded, benchmark, [first, second, replace(second, id=first.id)], "visible")
    assert str(error.value) == f"2 samples of passkey have the id {first.id!r}: each needs one of its own"
