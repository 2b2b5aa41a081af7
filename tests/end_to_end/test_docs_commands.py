"""Every command of the documentation: it runs with small limits, or is composed as far as this machine allows.

A tiny random model with the embedded model's tokenizer stands in for it, which would take minutes for each command.
"""

import re
import shlex
import shutil
import sys
from pathlib import Path

import pytest
from hydra import compose, initialize_config_dir

from kvbench.configuration import resolved
from kvbench.configuration.conf import CONF
from kvbench.evaluation.settings import build_settings
from kvbench.papers.command_line import jobs
from kvbench.runner.commands import COMMANDS
from kvbench.utils.model_override import expanded
from tests.support.command import command_line
from tests.support.paths import ROOT
from tests.support.runs import unreported

PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "scripts" / "README.md",
    *sorted((ROOT / "docs").glob("*.md")),
    *sorted((ROOT / "docs" / "decisions").glob("*.md")),
]
PROGRAM = re.compile(
    r"^(?:    +)(?:torchrun \S+ -m kvbench|(?:\S*/)?python -m kvbench|kvbench)(?: +(.*))?$", re.MULTILINE
)

# Commands in the order of these rules: (what its text contains, why it does not run here). What runs is in RUNS.
COMPOSED = [
    (r"^frontier ", "a search of many runs"),
    (r"^(table|figure) ", "records of the experiment"),
    (r"^benchmark=text", "nvfp4 needs heads of 16 channels, and the tiny model has 8"),
    (r"^-m | -m ", "a sweep: several runs"),
    (r"\bmodel=(?!smollm2-135m)", "a model of the hub or of a folder"),
    (r"\bengine=", "another program's server or package"),
    (r"\bpress=", "the package kvpress"),
    (r"\bbenchmark=(longbench|babilong|infinitebench|nolima|scbench|aime|math500)", "data of the hub"),
    (r"\bbenchmark\.data_dir=FOLDER", "a folder of a benchmark's data"),
    (r"^\+experiment=", "data of the hub, for hours"),
]
NAMED = [
    (
        r"^(check|compare|served|report|records|status|pack|unpack|verify|leaderboard) ",
        "their own tests; folders of finished runs",
    ),
    (r"^--config-dir", "the guide's files, which test_docs.py runs"),
    (r"^lm_eval ", "the package lm-eval"),
    (r"^(score|ruler) FOLDER", "a folder of LongBench's or RULER's files"),
    (r"^verify FOLDER model\.path", "a model and data in folders"),
    (r"^leaderboard results/", "a committed folder, which tests/scripts/test_results.py makes again"),
    (r"^-sc install", "the shell that reads it"),
    (r"@method\.\w+\.\w+=NAME$", "a file that a reader of the guide adds"),
]
TINY_NIAH = ["benchmark.lengths=[320]", "benchmark.depths=[50]", "benchmark.seeds=1", "benchmark.max_new_tokens=3"]
# What runs, with the arguments that make it small.
RUNS = {
    r"^$": ["method=[full,snapkv]", "ratio=0.5", *TINY_NIAH],
    r"^'?--help": [],
    r"^--version": [],
    r"^method=\[full,snapkv.*benchmark\.lengths=\[1024,4096\]": [*TINY_NIAH],
    r"^method=pyramidkv budget=128": TINY_NIAH,
    r"method\._target_=my_method": TINY_NIAH,
    r"^method=adakv ~method\.adakv\.scoring": TINY_NIAH,
    r"storage=smoothed_keys": TINY_NIAH,
    r"^method=\[full,snapkv\] ratio=0\.5$": TINY_NIAH,
    r"^benchmark\.lengths=\[512\] benchmark\.depths": [*TINY_NIAH, "limit=1"],
    r"^benchmark=jsonl": ["limit=1", "benchmark.max_new_tokens=4"],
    r"^benchmark=ruler benchmark\.tasks=": [
        "benchmark.lengths=[1024]",
        "benchmark.num_samples=1",
        "limit=1",
        "method=full",
    ],
    r"^benchmark=speed": [
        "benchmark.lengths=[128]",
        "benchmark.batches=[1]",
        "benchmark.new_tokens=4",
        "benchmark.repeats=2",
    ],
    r"^probe=": [*TINY_NIAH, "limit=1"],
}


def commands() -> list[tuple[str, ...]]:
    """The arguments of every kvbench command in a block of code, and of every exchange of a method's parts."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        found += [tuple(shlex.split(line, comments=True)) for line in PROGRAM.findall(text)]
        found += [(f"method={name}", code) for code, name in re.findall(r"`(\w+@method\.([a-z]\w*)\.[^`…]*)`", text)]
    return list(dict.fromkeys(found))


def matching(rules, command: tuple[str, ...]) -> str | None:
    return next((rule for rule in rules if re.search(rule, " ".join(command))), None)


RULES = {**{rule: "runs" for rule in RUNS}, **dict(NAMED), **dict(COMPOSED)}
ALL = commands()


def kind(command: tuple[str, ...]) -> str:
    """How a command is tested: it runs, is composed, is only named, or is an exchange of parts, which is composed."""
    for name, rules in (("named", dict(NAMED)), ("composed", dict(COMPOSED)), ("runs", RUNS)):
        if matching(rules, command):
            return name
    return "composed" if len(command) == 2 and "@method." in command[1] else "unknown"


def test_every_command_has_a_kind_and_every_rule_a_command():
    assert [" ".join(command) for command in ALL if kind(command) == "unknown"] == []
    assert [rule for rule in RULES if not any(re.search(rule, " ".join(command)) for command in ALL)] == []


def test_there_are_commands_of_every_kind():
    kinds = {argument.partition("=")[0] for command in ALL for argument in command}
    assert kinds >= {"-m", "model", "method", "benchmark", "+experiment", "probe", "press"}
    assert kinds >= {"storage@method.snapkv.storage", "scoring@method.pyramidkv.scoring"}


# Commands that run a model; the others read files.
FILES = ("report", "compare", "records", "status", "pack", "verify", "leaderboard", "table", "figure", "check")


def small(command: tuple[str, ...], model: list[str]) -> list[str]:
    """A command with the arguments that make it small, in place of its own values of the same keys."""
    given = [argument.replace("…", "") for argument in command if argument != "|"]
    if command and command[0] in ("report", "compare", "leaderboard", "verify", "pack", "frontier"):
        given = [place.replace("niah-smollm2-135m-", "niah-smollm2-135m-1a2b3c4d", 1) for place in given]
        given = [place.replace("1a2b3c4d1a2b3c4d", "1a2b3c4d") for place in given]
    limits = RUNS[matching(RUNS, command)]
    if command[:1] not in [(name,) for name in (*FILES, "--help", "--version")]:
        limits = [*limits, *model]
    if any("kivi" in argument for argument in command):
        limits = [*limits, "method.kivi.storage.group=8", "method.kivi.storage.residual=8"]  # the heads are narrow
    replaced = {limit.partition("=")[0] for limit in limits}
    return [argument for argument in given if argument.partition("=")[0] not in replaced] + limits


@pytest.fixture(scope="module")
def model(tiny_folder) -> list[str]:
    return [f"model.path={tiny_folder}", "model.shape=null", "model.max_length=4096"]


@pytest.fixture(scope="module")
def folder(model, tmp_path_factory) -> Path:
    """What the commands of the documentation name: files, classes, runs and a pack."""
    made = tmp_path_factory.mktemp("docs")
    (made / "docs").mkdir()
    shutil.copytree(ROOT / "docs" / "examples", made / "docs" / "examples")
    shutil.copy(ROOT / "docs" / "examples" / "own_prompts.jsonl", made / "FILE.jsonl")
    (made / "FILE.txt").write_text("The harbour was quiet, and ships came and went. " * 60, encoding="utf-8")
    for name in ("my_method.py", "my_decoding.py"):
        shutil.copy(ROOT / "tests" / "support" / name, made / name)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(made)
        patch.setattr("sys.path", [*sys.path])
        assert command_line("method=[full,snapkv]", "ratio=0.2", *TINY_NIAH, *model) == 0
        (run,) = (made / "runs").glob("niah-*")
        (named := made / "runs" / "niah-smollm2-135m-1a2b3c4d").parent.mkdir(exist_ok=True)
        run.rename(named)
        for copy in (made / "runs" / "before", made / "runs" / "after", made / "FOLDER"):
            shutil.copytree(named, copy)
        speed = RUNS[r"^benchmark=speed"]
        assert command_line("benchmark=speed", "method=[full,snapkv,knorm]", "ratio=0.5", *speed, *model) == 0
        next((made / "runs").glob("speed-*")).rename(made / "runs" / "speed-")
        assert command_line("pack", named) == 0
    return made


@pytest.mark.parametrize("command", [one for one in ALL if kind(one) == "runs"], ids=" ".join)
def test_a_command_that_can_run_runs(command, folder, model, monkeypatch, capsys):
    monkeypatch.chdir(folder)
    monkeypatch.setattr(sys, "path", [*sys.path])
    with unreported():
        code = command_line(*small(command, model))
    assert code == 0, capsys.readouterr().err


def test_the_commands_of_a_pack_follow_one_another(folder, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    shutil.copytree(folder / "runs" / "niah-smollm2-135m-1a2b3c4d", tmp_path / "runs" / "niah-smollm2-135m-1a2b3c4d")
    page = (ROOT / "docs" / "verify.md").read_text(encoding="utf-8")
    given = [shlex.split(line, comments=True) for line in PROGRAM.findall(page)[:3]]
    assert [command[0] for command in given] == ["pack", "verify", "unpack"]
    for command in given:
        assert command_line(*command) == 0, capsys.readouterr().err
    assert [path.name for path in (tmp_path / "unpacked").glob("*/records.jsonl")] == ["records.jsonl"]


# Arguments that a command beside the run has for itself; all others are a run's.
OWN_KEYS = ("quality=", "passes=", "measure=", "speed=", "runs=", "out=")


@pytest.mark.parametrize("command", [one for one in ALL if kind(one) == "composed"], ids=" ".join)
def test_a_command_of_the_documentation_is_one(command):
    """As far as it can be known without the data, the models and the packages that it names."""
    given = command[1:] if command[:1] in (("table",), ("figure",), ("frontier",)) else command
    folders = ("model.path=/models/Meta-Llama-3-8B-Instruct", "model=/models/my-model", "-m", "published=true")
    for job in jobs([one for one in given if one not in folders and not one.startswith(OWN_KEYS)]):
        with initialize_config_dir(str(CONF), version_base="1.3"):
            cfg = resolved(compose("config", expanded(job)))
        methods = {name: node for name, node in cfg.methods.items() if "kvpress" not in str(node)}
        if methods.get("_target_"):
            methods["_target_"] = f"tests.support.{methods['_target_']}"
        assert methods == {"_target_": None} or build_settings(methods, cfg.ratio, cfg.budget)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_other_commands_are_there(page):
    """Of words behind the program's name, those that begin no override; what a changelog calls by an older name too."""
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"python -m kvbench ([a-z]\w*)(?![\w@=.])", text))
    assert named <= set(COMMANDS)
    assert page.name == "CHANGELOG.md" or "python -m kvbench." not in text
    assert set(re.findall(r"`kvbench ([a-z_]+)", text)) <= set(COMMANDS)
