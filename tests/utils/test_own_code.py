"""Methods and metrics of the user's that raise: one line that names their file and line, and no traceback."""

import json
import sys

import pytest

from tests.support.command import command_line
from tests.support.runs import arguments

METHOD = """from dataclasses import dataclass
from kvbench.methods import Eviction


@dataclass
class Broken(Eviction):
    def compress(self, state, budget):
        return {}["missing"]


@dataclass
class NeedsMore(Eviction):
    def __post_init__(self):
        raise RuntimeError("two\\nlines")
"""
METRIC = "def score(prediction, answers):\n    return 1 / 0\n"


@pytest.fixture
def folder(tmp_path, monkeypatch):
    (tmp_path / "broken_method.py").write_text(METHOD)
    (tmp_path / "broken_metric.py").write_text(METRIC)
    (tmp_path / "broken_import.py").write_text("import json\n\nraise ValueError('not today')\n")
    (tmp_path / "rows.jsonl").write_text(json.dumps({"context": "abc", "answers": ["b"]}) + "\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    return tmp_path


OWN = {
    ("method._target_=broken_method.Broken",): "KeyError in broken_method.py, line 8: 'missing'",
    ("method._target_=broken_method.NeedsMore",): "RuntimeError in broken_method.py, line 14: two lines",
    ("method._target_=broken_import.Method",): "ValueError in broken_import.py, line 3: not today",
    (
        "benchmark=jsonl",
        "benchmark.path=rows.jsonl",
        "benchmark.metric=broken_metric.score",
    ): "ZeroDivisionError in broken_metric.py, line 2: division by zero",
    (
        "benchmark=jsonl",
        "benchmark.path=rows.jsonl",
        "benchmark.metric=broken_import.score",
    ): "ValueError in broken_import.py, line 3: not today",
}


@pytest.mark.parametrize("own", OWN, ids=" ".join)
def test_an_error_of_ones_own_code_is_one_line_with_file_and_line(own, folder, tiny_folder, capsys):
    few = [
        one
        for one in arguments(tiny_folder, "runs", "method=full")
        if own[0] != "benchmark=jsonl" or "bench" not in one
    ]
    assert command_line(*few, *own) == 2
    lines = capsys.readouterr().err.splitlines()
    (line,) = [line for line in lines if line.startswith("kvbench:")]
    assert OWN[own] in line and lines[-1] == line and "Traceback" not in "".join(lines)


def test_status_shows_an_error_of_ones_own_code_with_its_file_and_line(folder, tiny_folder, capsys):
    """It showed the bare message, which a KeyError's is hardly."""
    assert command_line(*arguments(tiny_folder, "runs", "method=full"), "method._target_=broken_method.Broken") == 2
    capsys.readouterr()
    assert command_line("status", "runs") == 1
    (row,) = [line for line in capsys.readouterr().out.splitlines() if "failed" in line]
    assert row.endswith("KeyError in broken_method.py, line 8: 'missing'")


@pytest.mark.parametrize("several", [(), ("-m",)], ids=["a run", "a sweep"])
def test_a_metric_in_the_working_directory_is_found(several, tmp_path, tiny_folder, monkeypatch, capsys):
    """Only `python -m kvbench` found it: `kvbench` looked for it before it looked in the working directory."""
    (tmp_path / "metric_here.py").write_text("def score(prediction, answers):\n    return 0.25\n")
    (tmp_path / "rows.jsonl").write_text(json.dumps({"context": "abc", "answers": ["b"]}) + "\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    monkeypatch.delitem(sys.modules, "metric_here", raising=False)
    few = [one for one in arguments(tiny_folder, "runs", "method=full") if "bench" not in one]
    own = ("benchmark=jsonl", "benchmark.path=rows.jsonl", "benchmark.metric=metric_here.score")
    assert command_line(*several, *few, *own) == 0, capsys.readouterr().err
    assert "0.250" in capsys.readouterr().out
