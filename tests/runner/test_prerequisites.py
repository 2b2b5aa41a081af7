"""Mistakes in values, paths, metrics and measures are found before torch is imported, which takes seconds."""

import pytest

import kvbench.benchmarks as benchmarks
from kvbench.benchmarks import longbench_kvpress, niah, ruler
from kvbench.config import CONF, options
from kvbench.metrics.answers import METRICS
from kvbench.metrics.names import ANSWERS, OF_BENCHMARK
from kvbench.runner.prerequisites import check_typed
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


MODULES = (benchmarks, longbench_kvpress, niah, ruler)  # where the classes of benchmarks are


def test_the_names_of_metrics_are_those_of_the_functions_and_benchmarks():
    assert tuple(METRICS) == ANSWERS
    named = {compose(f"benchmark={name}").benchmark["_target_"].rpartition(".")[2] for name in options("benchmark")}
    assert {*OF_BENCHMARK} == named and (CONF / "benchmark").is_dir()
    for name, metrics in OF_BENCHMARK.items():
        kind = next(getattr(module, name) for module in MODULES if hasattr(module, name))
        own = getattr(kind, "metrics", metrics)
        assert own == metrics if isinstance(own, tuple) else name == "Speed", name
