"""What a folder of --config-dir may have run: classes of methods and other parts, and nothing that Hydra calls."""

import json

import pytest

from kvbench.configuration.conf import composed, more_configuration
from tests.support.command import command_line
from tests.support.runs import arguments

CALLBACK = "callbacks: {evil: {_target_: runs_code.note}}"
LOGGING = "{version: 1, formatters: {evil: {'()': runs_code.note}}, root: {handlers: []}}"
FILES = {
    "a function as the class": (
        "method=[mine]",
        "# @package method.mine\n_target_: runs_code.note\n",
        "method 'mine': runs_code.note is",
    ),
    "a function as a part": (
        "method=[mine]",
        "# @package method.mine\n_target_: kvbench.methods.Eviction\nscoring: {_target_: runs_code.note}\n",
        "method 'mine', scoring: runs_code.note is not a subclass of kvbench.methods.Scoring",
    ),
    "a callback": (
        "+experiment=mine",
        f"# @package _global_\nhydra: {{{CALLBACK}}}\n",
        "D sets hydra.callbacks, which names code to run",
    ),
    "a callback in its package": (
        "+other=mine",
        f"# @package hydra\n{CALLBACK}\n",
        "D sets hydra.callbacks, which names code to run",
    ),
    "a logger": (
        "+experiment=mine",
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
@pytest.mark.parametrize("chosen, contents, message", FILES.values(), ids=FILES)
def test_a_folder_of_configuration_calls_no_function(chosen, contents, message, many, folder, tiny_folder, capsys):
    path = folder / chosen.strip("+").partition("=")[0] / "mine.yaml"
    path.parent.mkdir(exist_ok=True)
    path.write_text(contents)
    few = [one for one in arguments(tiny_folder, "runs", chosen) if not many or not one.startswith("ratio")]
    assert command_line(*many, "--config-dir", "D", *few) == 2
    printed = capsys.readouterr().err
    assert message in printed and printed.strip().count("\n") == 0
    assert not (folder.parent / "called").exists() and not (folder.parent / "runs").exists()


def test_the_command_line_may_choose_what_hydra_logs(folder, tiny_folder):
    few = arguments(tiny_folder, "runs", "method=full", "limit=1", "hydra/job_logging=stdout")
    assert command_line("--config-dir", "D", *few) == 0


ENVIRONMENT = {
    "a benchmark": ("benchmark/mine.yaml", "defaults: [niah, _self_]\nsentence: X\n", "benchmark=mine"),
    "a method": (
        "method/mine.yaml",
        "# @package method.mine\ndefaults: [snapkv@_here_, _self_]\nlabel: X\n",
        "method=[mine]",
    ),
    "a model": ("model/mine.yaml", "defaults: [hf, _self_]\nname: X\nhub_id: a/b\n", "model=mine"),
    "Hydra's own": ("method/mine.yaml", "# @package _global_\nhydra: {run: {dir: X}}\n", "method=[mine]"),
    "a group of its own": ("other/mine.yaml", "# @package _global_\nnote: X\n", "+other=mine"),
    "Hydra's own in such a group": ("other/mine.yaml", "# @package hydra\nrun: {dir: X}\n", "+other=mine"),
}
READING = (
    "${oc.env:HF_TOKEN}",
    r"\${oc.create:'{_target_: runs_code.note}'}",
    "${oc.decode:'${oc.env:HF_TOKEN}'}",
    "${oc.${part}:HF_TOKEN}",
    "${hydra:runtime.cwd}",
)
CASES = [*((READING[0], place) for place in ENVIRONMENT), *((text, "a benchmark") for text in READING[1:])]


@pytest.mark.parametrize("text, place", CASES)
def test_a_folder_of_configuration_reads_nothing_of_the_machine(text, place, folder, tiny_folder, monkeypatch, capsys):
    monkeypatch.setenv("HF_TOKEN", "a-secret")
    file, contents, chosen = ENVIRONMENT[place]
    (folder / file).parent.mkdir(exist_ok=True)
    (folder / file).write_text(contents.replace("X", json.dumps(text)))
    few = [one for one in arguments(tiny_folder, "runs", "limit=1") if not one.startswith(chosen.partition("=")[0])]
    assert command_line("--config-dir", "D", *few, chosen) == 2
    printed = capsys.readouterr().err
    assert "a configuration may refer to its own keys" in printed and printed.count("\n") == 1
    assert "a-secret" not in printed
    assert not (folder.parent / "called").exists() and not (folder.parent / "runs").exists()


@pytest.mark.parametrize(
    "text", ["${oc.env:HF_TOKEN}", r"\${oc.env:HF_TOKEN}", r"\${model.name}", "a ${oc.env:HF_TOKEN} b"]
)
def test_neither_does_the_command_line(text, folder, tiny_folder, monkeypatch, capsys):
    monkeypatch.setenv("HF_TOKEN", "a-secret")
    assert command_line(*arguments(tiny_folder, "runs"), f"benchmark.sentence='{text}'") == 2
    printed = capsys.readouterr().err
    assert "benchmark.sentence=" in printed and "a-secret" not in printed and printed.count("\n") == 1
    assert not (folder.parent / "runs").exists()


def test_a_folder_of_configuration_may_refer_to_its_own_keys(folder):
    (folder / "benchmark").mkdir()
    (folder / "benchmark" / "mine.yaml").write_text(
        "defaults: [niah, _self_]\nabout: b\nsentence: 'Of ${model.name}, ${oc.select:no.such,nothing}.'\n"
    )
    with more_configuration(folder):
        assert composed(["benchmark=mine"])["benchmark"]["sentence"] == "Of smollm2-135m, nothing."


def test_a_folder_of_configuration_sweeps_over_nothing_of_hydras(folder, tiny_folder, capsys):
    (folder / "hydra" / "job_logging").mkdir(parents=True)
    (folder / "hydra" / "job_logging" / "evil.yaml").write_text(
        "version: 1\nformatters: {evil: {'()': runs_code.note}}\nroot: {handlers: []}\n"
    )
    (folder / "experiment").mkdir()
    (folder / "experiment" / "mine.yaml").write_text(
        "# @package _global_\nhydra: {sweeper: {params: {hydra/job_logging: evil}}}\n"
    )
    few = [
        one
        for one in arguments(tiny_folder, "runs", "limit=1", "+experiment=mine", "ratio=0.2,0.4")
        if one != "ratio=[0.2,0.5]"
    ]
    assert command_line("-m", "--config-dir", "D", *few) == 2
    assert "D sweeps over hydra/job_logging: leave it out" in capsys.readouterr().err
    assert not (folder.parent / "called").exists()


@pytest.mark.parametrize("experiments", ["mine", "other,mine"])
@pytest.mark.parametrize("node", ["sweeper", "launcher", "job_logging"])
def test_a_folder_of_configuration_chooses_nothing_that_hydra_runs(node, experiments, folder, tiny_folder, capsys):
    (folder / "experiment").mkdir()
    evil = LOGGING if node == "job_logging" else "{_target_: runs_code.note}"
    (folder / "experiment" / "mine.yaml").write_text(f"# @package _global_\nhydra: {{{node}: {evil}}}\n")
    (folder / "experiment" / "other.yaml").write_text("# @package _global_\nlimit: 2\n")
    few = arguments(tiny_folder, "runs", "limit=1", "method=full", f"+experiment={experiments}")
    assert command_line("-m", "--config-dir", "D", *few) == 2
    assert f"D sets hydra.{node}, which names code to run: leave it out" in capsys.readouterr().err
    assert not (folder.parent / "called").exists()
