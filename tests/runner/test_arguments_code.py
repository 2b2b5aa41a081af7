"""What a folder of --config-dir may have run: classes of methods and other parts, and nothing that Hydra calls."""

import pytest

from tests.support.command import command_line
from tests.support.runs import arguments

CALLBACK = "callbacks: {evil: {_target_: runs_code.note}}"
LOGGING = "{version: 1, formatters: {evil: {'()': runs_code.note}}, root: {handlers: []}}"
FILES = {
    "a function as the class": (
        "# @package method.mine\n_target_: runs_code.note\n",
        "method 'mine': runs_code.note is",
    ),
    "a function as a part": (
        "# @package method.mine\n_target_: kvbench.methods.Eviction\nscoring: {_target_: runs_code.note}\n",
        "method 'mine', scoring: runs_code.note is not a subclass of kvbench.methods.Scoring",
    ),
    "a callback": (f"# @package _global_\nhydra: {{{CALLBACK}}}\n", "D sets hydra.callbacks, which names code to run"),
    "a callback in its package": (f"# @package hydra\n{CALLBACK}\n", "D sets hydra.callbacks, which names code to run"),
    "a logger": (
        f"# @package _global_\nhydra: {{job_logging: {LOGGING}}}\n",
        "D sets hydra.job_logging, which names code",
    ),
}


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A working directory with a module whose function leaves a file, and an empty D/method."""
    (tmp_path / "runs_code.py").write_text("def note(*_, **__): open('called', 'w').close()\n")
    (tmp_path / "D" / "method").mkdir(parents=True)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    return tmp_path / "D"


@pytest.mark.parametrize("many", [[], ["-m", "ratio=0.2,0.4"]], ids=["one run", "sweep"])
@pytest.mark.parametrize("contents, message", FILES.values(), ids=FILES)
def test_a_folder_of_configuration_calls_no_function(contents, message, many, folder, tiny_folder, capsys):
    (folder / "method" / "mine.yaml").write_text(contents)
    few = [one for one in arguments(tiny_folder, "runs", "method=[mine]") if not many or not one.startswith("ratio")]
    assert command_line(*many, "--config-dir", "D", *few) == 2
    printed = capsys.readouterr().err
    assert message in printed and printed.strip().count("\n") == 0
    assert not (folder.parent / "called").exists() and not (folder.parent / "runs").exists()


def test_the_command_line_may_choose_what_hydra_logs(folder, tiny_folder):
    few = arguments(tiny_folder, "runs", "method=full", "limit=1", "hydra/job_logging=stdout")
    assert command_line("--config-dir", "D", *few) == 0
