"""Predictions scored again."""

from types import SimpleNamespace

from kvbench.runner.verify.check_scores import scores_fit
from kvbench.runner.verify.verdict import Verdict


def test_scores_of_a_run_that_made_no_record_are_not_proven():
    check = scores_fit(SimpleNamespace(records=[], manifests={}))
    assert (check.verdict, check.notes) == (Verdict.UNPROVEN, ("there are no predictions",))
