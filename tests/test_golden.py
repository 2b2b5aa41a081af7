"""Presets and metrics give the results that are recorded for their versions, and a change of results is noticed."""

import ast

import pytest

from kvbench import benchmarks
from kvbench.benchmarks.base import Benchmark
from kvbench.methods import WindowAttention
from kvbench.metrics import needle
from kvbench.metrics.versions import VERSIONS
from tests.golden import __main__ as script
from tests.golden import files, methods, metrics
from tests.golden.files import findings, recorded
from tests.support.config import NAMES
from tests.support.paths import ROOT

# Draws of noise: two are tried daily, and all of them nightly.
DAILY, NIGHTLY = methods.DISTURBANCES[:2], methods.DISTURBANCES[2:]
DRAWS = [*DAILY, *(pytest.param(draw, marks=pytest.mark.slow) for draw in NIGHTLY)]
NOT_SCORES = {"aggregate", "backends", "math_equality", "versions"}  # means; imports; Math-Verify, of math_answers


def checked(kind, name: str) -> list[str]:
    return list(findings(name, recorded(kind.__name__.rpartition(".")[2]).get(name), kind.result(name)))


@pytest.mark.heavy
@pytest.mark.parametrize("name", NAMES)
def test_a_preset_gives_the_recorded_results(name):
    assert checked(methods, name) == []


@pytest.mark.parametrize("name", VERSIONS)
def test_a_file_of_metrics_gives_the_recorded_scores(name):
    assert checked(metrics, name) == []


def test_all_that_is_recorded_is_there():
    assert sorted(recorded("methods")) == NAMES
    assert set(recorded("seeds")) <= set(NAMES)
    assert set(recorded("metrics")) == set(VERSIONS) == set(metrics.CASES)
    assert sum(files.path(kind).stat().st_size for kind in script.KINDS) < 300_000


@pytest.mark.heavy
@pytest.mark.parametrize("disturbance", DRAWS)
def test_choices_of_presets_are_beyond_a_margin(disturbance):
    """Other kernels' rounding is less than this noise: it must decide nothing that is recorded."""
    with methods.disturbed(disturbance):
        found = {name: checked(methods, name) for name in NAMES}
    assert {name: what for name, what in found.items() if what} == {}


def test_a_new_presets_prompt_is_the_first_in_which_noise_decides_nothing(monkeypatch):
    def decided_by_rounding(name, seed):
        return {"versions": {}, "tokens": [next(methods.model().parameters()).sum().item() if seed < 2 else seed]}

    monkeypatch.setattr(methods, "result", decided_by_rounding)
    before = decided_by_rounding("new", 0)
    assert methods.find_seed("new") == 2 and decided_by_rounding("new", 0) == before


# A changed formula


@pytest.fixture
def other_formula(monkeypatch):
    """SnapKV's votes with the earliest tokens at the front."""
    votes = WindowAttention.votes

    def changed(self, layer):
        found = votes(self, layer)
        return found + 1e-2 * found.amax() * (found.shape[-1] - 1 - 0 * found).cumsum(-1).flip(-1)

    monkeypatch.setattr(WindowAttention, "votes", changed)


def test_another_formula_without_a_new_version_says_what_to_do(other_formula):
    (line,) = checked(methods, "snapkv")
    assert line.startswith("the results of snapkv changed (kept")
    assert "raise the version of what computes them now, " in line and "WindowAttention" in line
    assert line.endswith("then run python -m tests.golden")


def test_a_new_version_says_to_record(other_formula, monkeypatch):
    monkeypatch.setattr(WindowAttention, "version", 2)
    (line,) = checked(methods, "snapkv")
    assert line.startswith("the versions of snapkv are") and line.endswith(": run python -m tests.golden")


def test_another_score_without_a_new_version_says_what_to_do(monkeypatch):
    monkeypatch.setattr(needle, "common_prefix", lambda a, b: 0)
    (line,) = checked(metrics, "needle")
    assert line == (
        "the results of needle changed (scores): raise the version of what computes them now, needle, then run "
        "python -m tests.golden"
    )


def test_the_script_refuses_what_changed_without_a_new_version_and_records_it_with_one(tmp_path, monkeypatch, capsys):
    monkeypatch.setattr(files, "FOLDER", tmp_path)
    monkeypatch.setattr(script, "KINDS", {"metrics": lambda: {"needle": metrics.result("needle")}})
    monkeypatch.setattr(methods, "NAMES", [])  # no preset is new
    assert script.main() == 0
    before = files.path("metrics").read_bytes()
    assert script.main() == 0 and files.path("metrics").read_bytes() == before
    monkeypatch.setattr(needle, "common_prefix", lambda a, b: 0)
    assert script.main() == 1 and files.path("metrics").read_bytes() == before
    assert "raise the version of what computes them now, needle" in capsys.readouterr().err
    monkeypatch.setitem(VERSIONS, "needle", 7)
    assert script.main() == 0 and recorded("metrics")["needle"]["versions"] == {"needle": 7}
    assert checked(metrics, "needle") == []


# Benchmarks name the metrics that they read


def imported_metrics(module: str) -> set[str]:
    """The files of kvbench.metrics that a module, or the package that it is in, imports."""
    path = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    shared = path.parent.name in ("benchmarks", "niah")
    names = set()
    for file in [path] if shared else path.parent.glob("*.py"):
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ImportFrom) and node.module == "kvbench.metrics":
                names |= {alias.name for alias in node.names}
            elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("kvbench.metrics."):
                names.add(node.module.rpartition(".")[2])
    return names - NOT_SCORES


def kinds(base: type) -> list[type]:
    """kvbench's own subclasses of a class, at any depth, of those that are imported."""
    own = [kind for kind in base.__subclasses__() if kind.__module__.startswith("kvbench.")]
    return own + [further for kind in own for further in kinds(kind)]


EVERY = [getattr(benchmarks, name, None) for name in dir(benchmarks)]  # imports their modules


@pytest.mark.parametrize("kind", sorted({*kinds(Benchmark)}, key=str), ids=lambda kind: kind.__name__)
def test_a_benchmark_names_every_metric_that_it_reads(kind):
    assert benchmarks.__name__ in kind.__module__
    assert set(kind.scored_by) >= imported_metrics(kind.__module__)
    assert set(kind.scored_by) <= set(VERSIONS)
