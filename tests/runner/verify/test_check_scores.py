"""Predictions scored again."""

from types import SimpleNamespace

import pytest

from kvbench.benchmarks import Benchmark, Sample
from kvbench.runner.verify.check_scores import scores_fit
from kvbench.runner.verify.materials import Materials
from kvbench.runner.verify.verdict import Verdict

SAMPLE = Sample("a", "It rains in Porto.", ("Porto",), 8)


class Repeated(Benchmark):
    """Scores what a prediction repeats of its prompt, and makes an attribute that no configuration has."""

    name = "repeated"
    metrics = ("share",)
    longest = None

    def __init__(self):
        self.ignored = {"in"}

    def samples(self, tokenizer):
        return [SAMPLE]

    def score(self, sample, prediction):
        words = [word for word in prediction.split() if word not in self.ignored]
        return {"share": sum(word in sample.prompt for word in words) / len(words)}


def folder(share):
    """A folder with one record that has this score."""
    node = {"_target_": "outside.Repeated"}
    manifest = {"benchmark": node, "config": {"benchmark": node}}
    record = {"run": "1", "sample": "a", "setting": "full", "benchmark": "repeated", "prediction": "rains in Faro"}
    record |= {"answers": ["Porto"], "scores": {"share": share}, "metric": None, "distance": None, "kind": "method"}
    return SimpleNamespace(records=[record], manifests={"1": manifest})


def test_scores_of_a_run_that_made_no_record_are_not_proven():
    check = scores_fit(SimpleNamespace(records=[], manifests={}))
    assert (check.verdict, check.notes) == (Verdict.UNPROVEN, ("there are no predictions",))


@pytest.mark.parametrize(("share", "verdict"), [(0.5, Verdict.PROVEN), (0.75, Verdict.WRONG)])
def test_a_benchmark_made_here_scores_with_its_attributes_and_by_all_that_its_sample_has(share, verdict):
    made = Materials(None, [SAMPLE], (), benchmark=Repeated())
    assert scores_fit(folder(share), made).verdict is verdict


def test_a_score_that_reads_what_no_record_has_is_unproven_without_the_samples():
    """An empty prompt was scored in its place, and an honest folder was called wrong."""
    check = scores_fit(folder(0.5), Materials(None, None, (), benchmark=Repeated()))
    assert check.verdict is Verdict.UNPROVEN and "has no attribute 'prompt'" in check.notes[0]


def test_a_benchmark_of_another_run_than_the_first_is_not_taken_for_the_first_ones():
    made = folder(0.5)
    made.manifests = {"0": {"benchmark": {"_target_": "outside.Other"}}, **made.manifests}
    check = scores_fit(made, Materials(None, [SAMPLE], (), benchmark=Repeated()))
    assert check.verdict is Verdict.UNPROVEN and "is not a class" in " ".join(check.notes)
