"""What scripts share: results name their command and machine, and the frame needs no kvbench until then."""

import importlib
import json
import os
import signal
import subprocess
import sys
import time
from types import ModuleType, SimpleNamespace

import pytest

from kvbench.errors import UserError
from scripts import frame
from tests.support.paths import ROOT
from tests.support.report_run import write_run

WITHOUT = (
    "import sys; sys.modules['kvbench'] = None; import scripts.frame; scripts.frame.script_parser('').parse_args([])"
)


def test_a_result_says_which_command_and_machine_made_it(monkeypatch, tmp_path, capsys):
    main = ModuleType("__main__")
    main.__spec__ = SimpleNamespace(name="scripts.benchmarks.bench_host")
    monkeypatch.setitem(sys.modules, "__main__", main)
    monkeypatch.setattr(sys, "argv", ["bench_host.py", "--repeats", "2", "a name"])
    frame.tell({"what": "é", "rows": [1]}, tmp_path / "new" / "host.json")
    written = json.loads((tmp_path / "new" / "host.json").read_text("utf-8"))
    assert written == json.loads(capsys.readouterr().out)
    assert written["command"] == "python -m scripts.benchmarks.bench_host --repeats 2 'a name'"
    assert written["rows"] == [1] and {"made", "git", "hardware"} <= written.keys()


def test_integer_options_have_defaults_and_json_is_a_path(monkeypatch, tmp_path):
    monkeypatch.setattr(sys, "argv", ["x", "--new-tokens", "3", "--json", str(tmp_path)])
    assert vars(frame.arguments("", new_tokens=5, repeats=7)) == {"new_tokens": 3, "repeats": 7, "json": tmp_path}


@pytest.mark.parametrize(
    "script, option",
    [("formats", "windows"), ("formats", "needles"), ("essay_prompts", "count"), ("key_channels", "samples")],
)
def test_a_result_of_nothing_replaces_no_file(script, option, monkeypatch, tmp_path, capsys):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "argv", ["x", *["prompts.jsonl"] * (script == "essay_prompts"), f"--{option}", "0"])
    with pytest.raises(SystemExit, match="2"):
        importlib.import_module(f"scripts.results.{script}").main()
    assert f"argument --{option}: 0 is below 1" in capsys.readouterr().err and not [*tmp_path.iterdir()]


@pytest.mark.parametrize(
    "script, arguments, said",
    [
        ("results.gemma3", ["--ratio", "2"], "ratio 2.0 is outside (0, 1]"),
        ("results.key_channels", ["--models", "smollm2-135m", "--out", "/proc/x"], "cannot write to /proc/x: "),
        ("results.smollm2", ["similarity", "--tokens", "32"], "--tokens 32 must be more than the 32 whose attention"),
        ("results.smollm2", ["similarity", "--haystack-dir", "/nowhere"], "'/nowhere' is not a folder with .txt files"),
        ("results.leaderboard", ["report", "--runs", "/nowhere"], "/nowhere has no records of "),
        ("results.leaderboard_today", ["report", "--runs", "/nowhere"], "has no records of "),
        (
            "benchmarks.bench_speed",
            ["benchmark.new_tokens=2"],
            "benchmark.new_tokens=2 must be an integer of at least 4",
        ),
        ("results.engines", ["--tables", "/nowhere"], "there is no folder '/nowhere'"),
        ("results.engines", ["--tables", "."], "is no folder of a run with records and its table.csv"),
    ],
)
def test_a_mistake_in_what_a_script_is_given_is_one_line(script, arguments, said, monkeypatch, tmp_path):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path, [])
    monkeypatch.setattr(sys, "argv", ["x", *arguments])
    with pytest.raises(SystemExit) as left:
        importlib.import_module(f"scripts.{script}").main()
    told = str(left.value.code)
    assert said in told and "\n" not in told


def test_a_comparison_without_engines_is_refused(monkeypatch, capsys):
    monkeypatch.setattr(sys, "argv", ["x", "--without", "kvbench", "llama_cpp", "vllm", "openvino"])
    with pytest.raises(SystemExit, match="2"):
        importlib.import_module("scripts.results.engines").main()
    assert "--without leaves no engine" in capsys.readouterr().err


def test_a_step_in_an_environment_without_kvbench_has_the_frame():
    subprocess.run([sys.executable, "-c", WITHOUT], cwd=ROOT, check=True)


def test_a_signal_ends_a_script_after_what_its_blocks_end():
    ended = []
    with pytest.raises(SystemExit) as left, frame.until_stopped():
        try:
            os.kill(os.getpid(), signal.SIGTERM)
            time.sleep(60)  # until the handler runs
        finally:
            ended.append("a server")
    assert left.value.code == 128 + signal.SIGTERM and ended == ["a server"]


def test_an_error_that_the_user_can_correct_is_one_line(monkeypatch):
    monkeypatch.setattr(sys, "argv", ["served.py", "--of", "vllm"])
    with pytest.raises(SystemExit, match=r"^python .*--of vllm: 3 records could not be made$"), frame.until_stopped():
        raise UserError("3 records could not be made")
