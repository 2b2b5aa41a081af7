"""Mistakes in values, paths, metrics and measures are found before torch is imported, which takes seconds."""

import pytest

from kvbench.benchmarks import Benchmark
from kvbench.configuration.conf import choices
from kvbench.errors import UserError
from kvbench.metrics.aggregate import AGREEMENT
from kvbench.runner.prerequisites import check_measure, check_typed
from kvbench.utils.targets import class_of
from tests.support.interpreter import Ended, in_one_interpreter
from tests.support.runs import compose

MISTAKES = {
    ("ratio=20",): "ratio 20 is outside (0, 1]",
    ("-m", "ratio=0.2,20"): "ratio 20 is outside (0, 1]",
    ("budget=[64,0]",): "budget 0 is not a positive whole number",
    ("benchmark=jsonl", "benchmark.path=nofile.jsonl"): "benchmark.path='nofile.jsonl' does not exist",
    ("benchmark=longbench", "benchmark.data_dir=nowhere"): "benchmark.data_dir='nowhere' does not exist",
    ("benchmark=jsonl", "benchmark.path=README.md", "benchmark.metric=f2"): "unknown metric 'f2'. Did you mean 'f1'?",
    ("benchmark=niah", "benchmark.depths=[200]"): "benchmark.depths=200 must be a number from 0 to 100",
    ("benchmark=speed", "benchmark.repeats=0"): "benchmark.repeats=0 must be an integer of at least 1",
    ("frontier", "measure=top2"): "unknown measure 'top2'. Did you mean 'top1'? Allowed: agreed, digits, exact",
    ("frontier", "ratio=0.5"): "kvbench frontier chooses the ratios",
}


@pytest.fixture(scope="module")
def ended() -> dict[tuple[str, ...], Ended]:
    return dict(zip(MISTAKES, in_one_interpreter(*MISTAKES), strict=True))


@pytest.mark.heavy
@pytest.mark.parametrize("arguments", MISTAKES, ids=" ".join)
def test_a_mistake_is_found_before_torch_is_imported(arguments, ended):
    found = ended[arguments]
    assert found.code == 2 and found.imported == [], found.err
    assert MISTAKES[arguments] in " ".join(found.err.split()) and "Traceback" not in found.err


def test_what_is_typed_is_checked_as_hydra_reads_it():
    check_typed(["ratio=1e-1", "limit=5"])
    check_typed(["ratio=0.2,0.4", "ratio=[0.2,0.4]", "ratio=${x}", "~limit", "nonsense", "benchmark.path=null"])
    check_typed(["benchmark.path='a b\\'"])  # what Hydra cannot read is for Hydra to report


@pytest.mark.parametrize("name", choices("benchmark"))
def test_a_benchmarks_class_states_the_scores_of_its_records(name):
    node = compose(f"benchmark={name}").benchmark
    metrics = getattr(class_of(node, "benchmark", Benchmark), "metrics", None)
    assert isinstance(metrics, tuple), f"{node['_target_']} states no `metrics`: the names of the scores of its records"
    for measure in (None, *metrics, *AGREEMENT):
        check_measure(measure, node)
    with pytest.raises(UserError, match="unknown measure 'scores'"):
        check_measure("scores", node)


def test_a_benchmark_of_ones_own_may_state_its_scores_when_it_is_built():
    check_measure("anything", {"_target_": f"{__name__}.Late"})
    with pytest.raises(UserError, match=r"unknown measure 'anything'\. Allowed: agreed, f7, top1"):
        check_measure("anything", {"_target_": f"{__name__}.Early"})


class Late(Benchmark):
    longest = samples = score = None  # nothing is asked of it


class Early(Late):
    metrics = ("f7",)
