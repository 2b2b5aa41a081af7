"""The command line: mistakes in one line with exit code 2, help that lists everything, an installable wheel."""

import os
import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from hatchling.builders.wheel import WheelBuilder

from kvbench import __version__
from kvbench.configuration.conf import CONF
from kvbench.integrations.lm_eval.command import PARSER
from kvbench.papers.published import PUBLISHED
from kvbench.runner.commands import COMMANDS
from kvbench.runner.completion import complete_commands, with_config_dir_of_line
from kvbench.runner.help import help_text
from tests.support.interpreter import in_one_interpreter
from tests.support.paths import ROOT


def process(*arguments, **env):
    return subprocess.run(
        [sys.executable, *arguments],
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=os.environ | {"COLUMNS": "200"} | env,
        check=False,
    )


MISTAKES = {
    ("method=snapkw",): "unknown method 'snapkw'. Did you mean 'snapkv'? kvbench --help method lists all",
    ("method=[full,pyramid]",): "unknown method 'pyramid'. Did you mean 'pyramidkv'?",
    ("model=llama",): "unknown model 'llama'.",
    ("benchmark=needle",): "unknown benchmark 'needle'.",
    ("ratio=1.5",): "ratio 1.5 is outside (0, 1]",
    ("ratio=0",): "ratio 0 is outside (0, 1]",
    ("ratio=half",): "ratio 'half' is outside (0, 1]",
    ("ratio=[]",): "an empty list",
    ("ratio=0.2", "budget=64"): "ratio=0.2 and budget=64 exclude each other",
    ("budget=8", "method=pyramidkv"): "budget 8 is too small for 'pyramidkv': it always keeps 8 tokens",
    ("budget=4", "method=streaming_llm"): "at least 5 are needed",
    ("budget=12.5",): "budget 12.5 is not a positive whole number",
    ("benchmark.lengths=[1024,9000]",): "takes 9032 tokens, but smollm2-135m reads at most 8192",
    ("benchmark.lengths=[64]",): "64 must be an integer of at least 300",
    ("benchmark.depths=[101]",): "item 1 of benchmark.depths=101 must be a number from 0 to 100",
    ("benchmark.haystack_dir=/nowhere", "limit=1"): "benchmark.haystack_dir='/nowhere' does not exist",
    ("limit=0",): "limit=0 must be an integer of at least 1",
    ("model.path=/nowhere",): "model.path='/nowhere' must be a folder with a config.json",
    ("model.dtype=float8",): "unknown model.dtype 'float8'. Did you mean 'float32'?",
    ("method.pyramidkv.scoring.kernel=4",): "kernel=4 is even",
    ("method.pyramidkv.scoring.windw=4",): "unknown key 'windw'. Did you mean 'window'?",
    ("rato=0.2",): "unknown key 'rato'. Did you mean 'ratio'?",
    ("method=[full",): "method=[full cannot be read: [ and ] do not match; quote the whole",
    ("method=[]",): "no method is chosen",
    ("method=null",): "Config group override must be a string or a list",
    ("method._target_=nowhere.Method",): "nowhere.Method: there is no module 'nowhere' in this folder",
    ("method._target_=kvbench.methods.Evicton",): "kvbench.methods has no class 'Evicton'. Did you mean 'Eviction'?",
    ("press=KnormPress",): "press=KnormPress is for method=kvpress, which is not chosen",
    ("method=kvpress",): "press=NAME chooses one of kvpress's presses",
    ("model=[smollm2-135m,llama3-8b]",): "a run has one model; -m model=smollm2-135m,llama3-8b makes a run for each",
    ("model.max_length=long",): "model.max_length='long' must be an integer",
    ("+model.layers=2",): "unknown key in model 'layers'.",
    ("model.device=gpu",): "model.device='gpu' must be auto or a device of torch",
    ("~benchmark",): "no benchmark is chosen",
    ("model=llama3-8b", "limit=1"): "model 'llama3-8b' could not be loaded from meta-llama/Meta-Llama-3-8B-Instruct",
}


@pytest.mark.parametrize("arguments", MISTAKES, ids=" ".join)
def test_a_mistake_is_one_line_with_the_value_and_what_is_allowed(arguments, monkeypatch, kvbench, tmp_path):
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    monkeypatch.setenv("COLUMNS", "200")
    code, _, told = kvbench(*arguments, f"output_dir={tmp_path}")
    assert code == 2
    assert MISTAKES[arguments] in told
    assert told.strip().count("\n") == 0 or arguments[-1] == "limit=1"  # the loading status draws a line
    assert "Traceback" not in told
    assert not list(tmp_path.iterdir())  # nothing half-run


@pytest.mark.heavy
def test_a_mistake_in_a_real_process_and_its_traceback_on_request():
    short = process("-m", "kvbench", "ratio=2")
    assert short.returncode == 2
    assert short.stderr.count("\n") == 1
    full = process("-m", "kvbench", "ratio=2", HYDRA_FULL_ERROR="1")
    assert full.returncode != 0
    assert "Traceback" in full.stderr
    assert "ratio 2 is outside (0, 1]" in full.stderr


def test_help_names_every_other_command_and_each_has_help_in_one_style(kvbench):
    for name, command in COMMANDS.items():
        assert re.search(rf"\[cyan\]kvbench {name} *\[/\]  {re.escape(command.about)}", help_text())
        if name == "lm_eval":  # continues with lm-eval's help, where lm-eval is installed
            assert PARSER.format_help().startswith("usage: kvbench lm_eval ")
            continue
        code, out, err = kvbench(name, "--help")
        assert (code, err) == (0, "")
        assert out.startswith(f"usage: kvbench {name} ") and "\narguments:\n" in out


@pytest.mark.parametrize("width", [80, 100])
def test_the_help_of_a_command_fits_the_terminal(width, monkeypatch, kvbench):
    monkeypatch.setenv("COLUMNS", str(width))
    for name in COMMANDS:
        text = PARSER.format_help() if name == "lm_eval" else kvbench(name, "--help")[1]
        assert [line for line in text.splitlines() if len(line) > width or line != line.rstrip()] == [], name


@pytest.mark.parametrize(
    "word, near", [("tabel", "table"), ("figures", "figure"), ("lm-eval", "lm_eval"), ("record", "records")]
)
def test_an_unknown_command_is_one_line_with_the_nearest(word, near, kvbench):
    code, out, err = kvbench(word, "+experiment=spindlekv_table1")
    assert (code, out, err.count("\n")) == (2, "", 1)
    line = " ".join(err.split())
    assert (
        f"unknown command {word!r}. Did you mean {near!r}? Allowed: calibrate, check, compare, figure, frontier,"
        in line
    )


@pytest.mark.parametrize(
    "word, lists", [("help", "--help"), ("methods", "--help method"), ("benchmark", "--help benchmark")]
)
def test_a_word_of_the_help_in_a_commands_place_is_answered_with_where_it_is(word, lists, kvbench):
    code, out, err = kvbench(word)
    assert (code, out) == (2, "")
    assert f"unknown command {word!r}. kvbench {lists} lists them. Allowed: calibrate," in " ".join(err.split())


def test_the_version(kvbench):
    assert kvbench("--version") == (0, f"kvbench {__version__}\n", "")


@pytest.mark.heavy
def test_help_waits_for_no_model_library():
    commands = [(name, "--help") for name in COMMANDS if name not in ("lm_eval", "ruler")]  # which import tokenizers
    commands += [("--help",), ("--version",), ("tabel",)]
    ended = in_one_interpreter(*commands)
    assert [done.code for done in ended] == [0] * (len(commands) - 1) + [2]
    assert {command: done.imported for command, done in zip(commands, ended, strict=True) if done.imported} == {}


@pytest.mark.parametrize(
    ("line", "first", "left"),
    [
        ("kvbench re", ["report", "records"], "kvbench re"),
        ("kvbench ", [*COMMANDS], "kvbench "),
        ("kvbench method=sn", [], "kvbench method=sn"),
        ("kvbench table +exp", [], "kvbench +exp"),
        ("kvbench table ", [], "kvbench "),
    ],
)
def test_a_shell_completes_commands_and_then_their_overrides(line, first, left, monkeypatch, capsys):
    monkeypatch.setenv("COMP_LINE", line)
    assert complete_commands(["-sc", "query=bash"])
    assert sorted(capsys.readouterr().out.split()) == sorted(first) and os.environ["COMP_LINE"] == left


def test_files_are_for_the_shell_to_complete(monkeypatch, kvbench):
    monkeypatch.setenv("COMP_LINE", "kvbench report ru")
    assert kvbench("-sc", "query=bash") == (0, "", "")
    monkeypatch.setenv("COMP_LINE", "kvbench table method=snapkv_pa")
    assert "method=snapkv_paper" in kvbench("-sc", "query=bash")[1].split()


@pytest.mark.parametrize("typed", ["--config-dir {} method=my_", "method=my_", "table --config-dir={} method=my_"])
def test_names_of_the_lines_own_folder_are_completed(typed, tmp_path, monkeypatch, kvbench):
    (tmp_path / "method").mkdir()
    (tmp_path / "method" / "my_method.yaml").write_text("# @package method.my_method\n_target_: kvbench.methods.TOVA\n")
    monkeypatch.setenv("COMP_LINE", f"kvbench {typed.format(tmp_path)}")
    code, out, error = kvbench("-sc", "query=bash")
    assert (code, error) == (0, "")
    assert out.split() == ["method=my_method"] * ("config-dir" in typed)


def test_a_folder_that_is_being_typed_is_for_the_shell(monkeypatch):
    for line in ("kvbench --config-dir con", "kvbench --config-dir ", "kvbench --config-dir=con", "kvbench -m method="):
        monkeypatch.setenv("COMP_LINE", line)
        assert with_config_dir_of_line(["-sc", "query=bash"]) == ["-sc", "query=bash"]
        assert os.environ["COMP_LINE"] == line


def test_hydras_completion_reaches_the_command(kvbench):
    code, out, _ = kvbench("-sc", "install=bash")
    assert code == 0 and "hydra_bash_completion" in out


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    """The installable wheel of this checkout."""
    folder = tmp_path_factory.mktemp("wheel")
    return Path(next(WheelBuilder(str(ROOT)).build(directory=str(folder), versions=["standard"])))


@pytest.mark.heavy
def test_a_wheel_has_every_file_that_is_read_beside_the_code(wheel):
    names = set(zipfile.ZipFile(wheel).namelist())
    there = [path for path in (ROOT / "kvbench").rglob("*") if path.is_file() and "__pycache__" not in path.parts]
    assert {str(path.relative_to(ROOT)) for path in there} <= names
    assert {path.suffix for path in there} > {".py", ".html", ".csv"}
    assert {f"kvbench/conf/{path.relative_to(CONF)}" for path in CONF.rglob("*.yaml")} <= names
    assert {f"kvbench/published/{path.name}" for path in PUBLISHED.glob("*.csv")} <= names


@pytest.mark.heavy
def test_a_wheel_works_outside_of_the_checkout(wheel, tmp_path):
    """Its code, its configuration, the published values and a class in the working directory."""
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "installed")
    (tmp_path / "my_method.py").write_text((ROOT / "tests" / "support" / "my_method.py").read_text())
    commands = ("--help", "experiment"), ("table", "+experiment=pyramidkv_table1", "published=true")
    commands += (("check", "my_method.MyMethod"),)
    shown, table, checked = in_one_interpreter(*commands, cwd=tmp_path, PYTHONPATH=str(tmp_path / "installed"))
    assert "101,250 records" in shown.out
    assert "PyramidKV Table 1" in table.out, table.err
    assert "every rule holds" in checked.out, checked.err


WITHOUT = """
import sys
{missing}
{start}
"""


@pytest.mark.parametrize("missing", ["sys.modules['fcntl'] = None", "import signal; del signal.SIGUSR1"])
@pytest.mark.parametrize("start", ["import kvbench", "import runpy; runpy.run_module('kvbench', run_name='__main__')"])
def test_a_system_without_unixs_locks_and_signals_is_one_line(missing, start):
    done = process("-c", WITHOUT.format(missing=missing, start=start))
    assert done.returncode == 2
    (line,) = done.stderr.splitlines()
    assert line.startswith("kvbench: needs a Unix system") and "fcntl" in line and "SIGUSR1" in line
