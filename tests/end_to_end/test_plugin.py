"""tests/plugin_example, installed by pip: its method, storage, benchmark, metric, engine, model and command at work."""

import json
import os
import re
import shutil
import subprocess
import sys

import pytest

from kvbench.records import load
from kvbench.records.manifest import read_manifests
from tests.support.paths import ROOT

# Commands one after the other in one process, each with its exit code behind what it printed.
DRIVER = """
import json, sys
from tests.support.command import command_line

for arguments in json.loads(sys.argv[1]):
    code = command_line(*arguments)
    print(f"\\n>>> {code}", flush=True)
"""
ROWS = [{"context": "The harbour is in Lisbon.", "question": "Where?", "answers": ["Lisbon"], "metric": "first_word"}]
KEYS = ("method=[full,small_keys]", "model=two_layers", "benchmark=code_in_line", "benchmark.count=2", "budget=100")
COMMANDS = {
    "help": ["--help"],
    "methods": ["--help", "method"],
    "storages": ["--help", "storage"],
    "metrics": ["--help", "metric"],
    "method": [*KEYS, "output_dir=method"],
    "storage": [*KEYS[1:], "method=snapkv", "storage@method.snapkv.storage=rounded_values", "output_dir=storage"],
    "engine": ["engine=parrot", "benchmark=jsonl", "benchmark.path=rows.jsonl", "output_dir=engine"],
    "command": ["words", "method"],
    "verify": ["verify", "method", "storage", "engine"],
    "check": ["check", "kvbench_example.small_keys.KeepSmallKeys"],
}


@pytest.fixture(scope="module")
def installed(tmp_path_factory):
    """A folder of Python's path with the package, and nothing of it in the repository."""
    folder = tmp_path_factory.mktemp("plugin")
    source = shutil.copytree(ROOT / "tests" / "plugin_example", folder / "source")
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation"]
    subprocess.run([*pip, "--target", str(folder / "site"), str(source)], check=True)
    return folder / "site"


@pytest.fixture(scope="module")
def ran(installed, tmp_path_factory):
    """The folder in which the commands ran, and what each printed."""
    folder = tmp_path_factory.mktemp("runs")
    (folder / "rows.jsonl").write_text("".join(json.dumps(row) + "\n" for row in ROWS))
    path = {"PYTHONPATH": f"{ROOT}:{installed}", "COLUMNS": "200"}
    command = [sys.executable, "-c", DRIVER, json.dumps([*COMMANDS.values()])]
    done = subprocess.run(command, cwd=folder, env=os.environ | path, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    parts = re.split(r"^>>> (\d+)$", done.stdout, flags=re.MULTILINE)
    assert parts[1::2] == ["0"] * len(COMMANDS), done.stdout + done.stderr
    return folder, dict(zip(COMMANDS, parts[::2], strict=False))


def test_help_lists_what_it_brings_with_its_name(ran):
    printed = ran[1]["help"]
    assert re.search(r"^ +small_keys +Small keys: .*\(kvbench-example\)$", printed, re.MULTILINE)
    for name in ("parrot", "two_layers", "code_in_line"):
        assert re.search(rf"^ +kvbench-example: {name}$", printed, re.MULTILINE)
    assert re.search(r"^ +kvbench words +count the words of predictions \(kvbench-example\)$", printed, re.MULTILINE)
    assert re.search(r"^ +small_keys +Small keys: .*in 8 bits \(kvbench-example\)$", ran[1]["methods"], re.MULTILINE)
    assert re.search(r"^  rounded_values +.*\(kvbench-example\)$", ran[1]["storages"], re.MULTILINE)
    assert re.search(r"^  first_word +1 where .* \(kvbench-example\)$", ran[1]["metrics"], re.MULTILINE)


def test_its_method_and_storage_run_on_its_model_and_benchmark(ran):
    folder, printed = ran
    records = load(folder / "method", folder / "storage")
    assert {*records["setting"]} == {"full", "small_keys 100", "snapkv 100"} and len(records) == 6
    assert {*records["benchmark"]} == {"code_in_line"} and {*records["model"]} == {"two_layers"}
    assert "Small keys" in printed["method"]
    compressed = records.loc[records["setting"] != "full"]
    assert (compressed["r_bytes"] < 0.1).all()
    storages = {json.loads(parameters)["storage"]["_target_"] for parameters in compressed["parameters"]}
    assert storages == {"kvbench_example.rounded_values.RoundedValues"}


def test_its_engine_answers_and_its_metric_scores_a_row_that_names_it(ran):
    (record,) = load(ran[0] / "engine").to_dict("records")
    assert record["setting"] == "parrot 40" and record["metric"] == "first_word" and record["scores"] == {"score": 0.0}
    assert len(record["metric_sha256"]) == 64


@pytest.mark.parametrize("run", ["method", "storage", "engine"])
def test_a_manifest_has_the_version_of_what_made_the_records(run, ran):
    (folder,) = (path.parent for path in (ran[0] / run).glob("*/records.jsonl"))
    (manifest,) = read_manifests(folder)[0].values()
    assert manifest["plugins"] == {"kvbench-example": "1.0"}
    assert {*load(folder)["plugins"]} == {'{"kvbench-example": "1.0"}'}


def test_its_command_counts_words(ran):
    records = load(ran[0] / "method")
    for setting, predictions in records.groupby("setting")["prediction"]:
        assert f"{setting}: {sum(len(text.split()) for text in predictions)}\n" in ran[1]["command"]


def test_verify_accepts_its_records(ran):
    printed = ran[1]["verify"]
    assert " wrong " not in printed and "is not a class" not in printed
    assert printed.count("proven     scores") == 3 and printed.count("plausible  bytes") == 2
    assert printed.count("proven     samples") == 2  # the engine's are in a file


def test_check_runs_its_method(ran):
    assert "every rule holds" in ran[1]["check"]
