"""Arguments in any order, --config-dir for every command, and mistakes that need no model library."""

import subprocess
import sys

import pytest

from kvbench.configuration import configured
from kvbench.configuration.conf import choices, more_configuration, options
from kvbench.errors import UserError
from kvbench.metrics.aggregate import COLUMNS
from kvbench.papers.captions import title
from kvbench.runner.arguments import typed, without_config_dir
from tests.support.command import command_line, kvbench
from tests.support.paths import ROOT

EXPERIMENT = """# @package _global_
defaults:
  - override /method: [full, mine]
  - override /benchmark: niah
ratio: 0.5
experiment:
  {name: my_item, paper: Mine, item: table 1, about: of my own, show: table, models: smollm2-135m, columns: digits}
"""


@pytest.fixture
def mine(tmp_path):
    """A folder for --config-dir with a method and an experiment that uses it."""
    folder = tmp_path / "it's, mine"
    for group, name, text in (
        ("method", "mine", "# @package method.mine\ndefaults: [snapkv@_here_, _self_]\nabout: a method of my own\n"),
        ("experiment", "my_item", EXPERIMENT),
    ):
        (folder / group).mkdir(parents=True)
        (folder / group / f"{name}.yaml").write_text(text)
    return folder


@pytest.mark.parametrize(
    "arguments",
    [
        ["--config-dir", "D", "table", "+experiment=x"],
        ["table", "--config-dir=D", "+experiment=x"],
        ["table", "+experiment=x", "-cd", "D"],
    ],
)
def test_config_dir_stands_in_any_position(arguments):
    folder, rest = without_config_dir(arguments)
    assert (str(folder), rest) == ("D", ["table", "+experiment=x"])


def test_options_stand_in_any_position_with_their_values():
    options, overrides, for_hydra = typed(["a=1", "--resolve", "b=2", "--cfg", "job", "~c"])
    assert (options.cfg, options.multirun, overrides) == ("job", False, ["a=1", "b=2", "~c"])
    assert for_hydra == ["--resolve", "--cfg", "job"]
    assert typed(["a=1", "-m", "b=2"])[1:] == (["a=1", "b=2"], [])


@pytest.mark.parametrize(
    "arguments, line",
    [
        (["--verbose"], "unknown option '--verbose'. Did you mean '--version'? Allowed: --cfg,"),
        (["method=full", "report"], "'report' is not KEY=VALUE, and a command must come first: kvbench COMMAND"),
        (["-m", "--cfg", "job"], "argument -c/--cfg: not allowed with argument -m/--multirun"),
        (["--ratio", "0.2"], "--ratio: a key has no dashes: write ratio=0.2"),
        (["--ratio=0.2"], "--ratio=0.2: a key has no dashes: write ratio=0.2"),
        (["--method", "snapkv"], "--method: a key has no dashes: write method=snapkv"),
        (["ratio", "=", "0.2"], "ratio = 0.2: write ratio=0.2 without blanks"),
        (["[snapkv,h2o"], "'[snapkv,h2o' is a list without a key: write 'method=[snapkv,h2o]', in quotes"),
        (["method=full", "--config-dir"], "--config-dir needs a folder: --config-dir FOLDER, with method/NAME.yaml"),
        (["--config-dir", "/nowhere"], "--config-dir /nowhere does not exist: it takes a folder with method/NAME.yaml"),
        (["report", "x", "-cd=/a", "-cd=/b"], "-cd /b: /a is given too, and only one folder"),
        (["ruler", "out", "benchmark.lengths=[1024"], "benchmark.lengths=[1024 cannot be read: [ and ] do not match"),
    ],
)
def test_a_mistake_in_the_arguments_is_one_line(arguments, line, capsys, monkeypatch):
    monkeypatch.setenv("COLUMNS", "400")
    assert command_line(*arguments) == 2
    told = capsys.readouterr()
    assert line in told.err and told.err.count("\n") == 1 and not told.out


def test_names_of_ones_own_are_choices_with_a_line_about_them(mine, capsys):
    assert "mine" not in choices("method")
    with more_configuration(mine):
        assert "mine" in choices("method") and "full" in choices("method")
        assert options("method")["mine"] == "a method of my own"
    assert command_line("method=full", "--config-dir", mine, "--help", "method") == 0
    assert "a method of my own" in capsys.readouterr().out


def test_an_experiment_of_ones_own_is_not_said_to_be_changed(mine):
    with more_configuration(mine):
        cfg = configured(["+experiment=my_item"])
        assert title(cfg) == "Mine table 1"
        assert title(configured(["+experiment=my_item", "method.mine.scoring.window=8"])) == (
            "Mine table 1, changed: mine.scoring.window 8"
        )


@pytest.mark.parametrize("command", ["table", "figure"])
def test_commands_find_experiments_of_ones_own(command, mine, tmp_path, capsys):
    runs = tmp_path / "runs"
    runs.mkdir()
    arguments = ["+experiment=my_item", f"runs={runs}", "--config-dir", mine]
    assert kvbench(command, *arguments) == 2
    assert "no records of my_item in" in capsys.readouterr().err
    assert kvbench(command, "--help", "--config-dir", mine) == 0
    assert "my_item" in capsys.readouterr().out


def test_a_run_finds_them_too_before_and_after_other_arguments(mine, capsys):
    for arguments in (["--config-dir", mine, "method=mine"], ["method=mine", f"--config-dir={mine}"]):
        assert command_line(*arguments, "--cfg", "job") == 0
        assert "a method of my own" in capsys.readouterr().out
    assert command_line("method=min", "--config-dir", mine) == 2
    assert "unknown method 'min'. Did you mean 'mine'?" in capsys.readouterr().err


EARLY = {
    "question=hiden": "unknown question 'hiden'. Did you mean 'hidden'? Allowed: hidden, visible",
    "memory=streem": "unknown memory 'streem'. Did you mean 'stream'?",
    "distance=maybe": "unknown distance 'maybe'.",
    "kernels=cuda": "unknown kernels 'cuda'.",
    "wandb.mode=on": "unknown wandb.mode 'on'. Did you mean 'online'?",
    "ratio=2": "ratio 2 is outside (0, 1]",
    "limit=0": "limit=0 must be an integer of at least 1",
    "prefill.chunk=0": "prefill.chunk=0 must be an integer of at least 1",
    "decode.batch=0": "decode.batch=0 must be auto, all or an integer of at least 1",
    "decode.batch=every": "decode.batch='every' must be auto, all or an integer of at least 1",
    "shard=3": "shard=3 must be from 0 to 0 with shards=1",
    "model.path=/nope": "model.path='/nope' must be a folder with a config.json",
    "model=hf": "model=hf needs a model: model=org/name on the hub, or model=/folder",
    "model.dtype=float8": "unknown model.dtype 'float8'. Did you mean 'float32'?",
    "model.chat_template=no": "unknown model.chat_template 'no'. Did you mean 'none'?",
}


@pytest.mark.heavy
def test_cheap_mistakes_are_found_before_torch_is_imported():
    code = f"""
import sys
from kvbench.configuration import configured
from kvbench.errors import UserError
from kvbench.runner.prerequisites import check_machine
for override, line in {EARLY}.items():
    try:
        check_machine(configured([override]))
    except UserError as error:
        assert line in str(error), (override, str(error))
    else:
        raise SystemExit(f"{{override}} is not refused")
from kvbench.__main__ import main
for arguments in (["question=hiden"], ["-m", "question=visible,hiden"]):
    sys.argv = ["kvbench", *arguments]
    try:
        main()
    except SystemExit as stop:
        assert stop.code == 2
    else:
        raise SystemExit(f"{{arguments}} is not refused")
assert not {{"torch", "transformers"}} & {{*sys.modules}}
"""
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert done.stderr.count("\n") == done.stderr.count("unknown question 'hiden'") == 2


def test_the_same_values_are_checked_where_no_command_line_is():
    from kvbench.runner.request import build_request

    with pytest.raises(UserError, match="unknown question 'hiden'"):
        build_request(configured(["question=hiden"]))


@pytest.mark.parametrize("name", COLUMNS)
def test_a_setting_is_not_called_as_a_column_of_tables(name):
    """A method of the name `samples` took the place of the number of samples, and `task` ended in a traceback."""
    from kvbench.runner.request import build_request

    with pytest.raises(UserError, match=f"any name but kind, task, samples, which tables have: rename '{name}'"):
        build_request(configured(["method=full", f"+method@method.{name}=kivi"]))


@pytest.mark.parametrize("override", ["+method@method.adakv=streaming_llm", "method@method.adakv=adakv,snapkv"])
def test_a_method_under_another_ones_name_is_refused(override, capsys):
    """Tables had it under the other's title."""
    assert command_line("-m", "method=full", override, "ratio=0.2") == 2
    told = capsys.readouterr().err
    assert told.startswith(f"kvbench: {override}: tables would show ") and " as adakv, which is another " in told
    assert told.count("\n") == 1
    own = configured(["method=full", "+method@method.mine=adakv", "+method@method.adakv=adakv"])
    assert {"full", "mine", "adakv"} <= {*own.methods}


@pytest.mark.heavy
def test_a_folder_of_hydra_that_cannot_be_made_is_one_line(capsys):
    assert command_line("method=full", "hydra.run.dir=/proc/x") == 2
    assert capsys.readouterr().err == "kvbench: /proc/x cannot be used: No such file or directory\n"


def test_no_arguments_run_the_configuration_as_it_is(monkeypatch):
    given = []
    monkeypatch.setattr("kvbench.runner.jobs.run_one", lambda overrides, run: given.append(overrides))
    assert command_line() == 0 and given == [[]]
