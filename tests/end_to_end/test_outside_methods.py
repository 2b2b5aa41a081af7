"""Three methods written with docs/adding-a-method.md alone: a scorer, a storage, and one that acts while decoding."""

import re
import shutil
import sys

import pytest

from kvbench.records import load
from tests.support.command import command_line
from tests.support.paths import ROOT

STORAGE = ROOT / "tests" / "plugin_example" / "kvbench_example" / "rounded_values.py"
METHODS = {
    "outside_scorer.FarVotes": [],
    # it quantises values, so the first rule, FullKV's tokens at a budget of the whole prompt, does not apply
    "outside_storage.KNormRounded": ["a budget of the whole prompt gives FullKV's tokens"],
    "my_decoding.LargeValues": [],
}


@pytest.fixture(params=METHODS)
def name(request, tmp_path, monkeypatch) -> str:
    """The class of a file in the working directory, which is where the guide puts it."""
    file = ROOT / "tests" / "support" / f"{request.param.partition('.')[0]}.py"
    for each in (file, STORAGE) if file.stem == "outside_storage" else (file,):
        shutil.copy(each, tmp_path)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return request.param


def test_it_imports_from_kvbench_methods_alone(name, tmp_path):
    for file in tmp_path.glob("*.py"):
        text = file.read_text(encoding="utf-8")
        assert set(re.findall(r"^from (kvbench\S*) import", text, re.M)) == {"kvbench.methods"}


def test_every_rule_that_applies_holds(name, capsys):
    command_line("check", name)
    told = capsys.readouterr().out
    assert re.findall(r"^broken ([^:]+):", told, re.M) == METHODS[name] and told.count("holds  ") >= 8


def test_a_run_has_its_records(name, tiny_folder, tmp_path, capsys):
    model = [f"model.path={tiny_folder}", "model.shape=null", "model.max_length=4096"]
    small = ["benchmark.lengths=[320]", "benchmark.depths=[50]", "benchmark.seeds=1"]
    preset = "snapkv_decode" if "decoding" in name else "snapkv"
    assert command_line(f"method=[full,{preset}]", f"method._target_={name}", "budget=40", *small, *model) == 0, (
        capsys.readouterr().err
    )
    records = load(tmp_path / "runs")
    assert len(records) == 3 and (records["r_bytes"] < 1).sum() == 2  # FullKV, the preset beside it, and the class
