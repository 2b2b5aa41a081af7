"""The documentation names what is there, and points at nothing that is not."""

import re
import shlex

import pytest
from hydra import compose, initialize_config_dir
from omegaconf import OmegaConf

from kvbench.config import CONF
from kvbench.evaluation.settings import build_settings
from kvbench.models import model_spec
from kvbench.papers.command_line import jobs
from kvbench.papers.experiment import chosen_methods
from kvbench.run.help import COMMANDS
from tests.support.paths import ROOT

PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "scripts" / "README.md", *(ROOT / "docs").glob("*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://", "#")):
            assert (page.parent / target.partition("#")[0]).exists(), target


def test_every_method_and_benchmark_is_told_of():
    methods = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    benchmarks = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    missing = [path.stem for path in (CONF / "method").glob("*.yaml") if f"`{path.stem}`" not in methods]
    missing += [path.stem for path in (CONF / "benchmark").glob("*.yaml") if path.stem not in benchmarks]
    assert not missing


def test_every_model_is_told_of():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [path.stem for path in (CONF / "model").glob("*.yaml") if f"`{path.stem}`" not in text] == []


def test_the_method_of_the_readme_is_the_one_that_is_tested():
    code = (ROOT / "tests" / "support" / "my_method.py").read_text(encoding="utf-8")
    assert code.strip() in (ROOT / "README.md").read_text(encoding="utf-8")


# --- commands


def commands() -> list[tuple[str, ...]]:
    """The arguments of every `python -m kvbench` in the documentation, and of every exchange of a method's parts."""
    found = []
    for page in PAGES:
        text = page.read_text(encoding="utf-8").replace("\\\n", " ")
        found += [
            tuple(shlex.split(line, comments=True))
            for line in re.findall(r"^    python -m kvbench (.*)$", text, re.MULTILINE)
        ]
        found += [(f"method={name}", code) for code, name in re.findall(r"`(\w+@method\.([a-z]\w*)\.[^`…]*)`", text)]
    return list(dict.fromkeys(found))


def test_there_are_commands_of_every_kind():
    kinds = {argument.partition("=")[0] for command in commands() for argument in command}
    assert kinds >= {"-m", "model", "method", "benchmark", "+experiment", "probe", "press"}
    assert kinds >= {"storage@method.snapkv.storage", "scoring@method.pyramidkv.scoring"}


# Commands beside the run whose arguments are a run's; of the others, any arguments are their own.
OVERRIDES = {"table", "figure"}
RUNS = [
    command[1:] if command[0] in OVERRIDES else command
    for command in filter(None, commands())
    if command[0] in OVERRIDES or command[0] not in COMMANDS
]


@pytest.mark.parametrize("command", RUNS, ids=" ".join)
def test_a_command_of_the_documentation_is_one(command):
    """As far as it can be known without the data, the models and the guests that it names."""
    not_here = ("-m", "--help", "model.path=/models/Meta-Llama-3-8B-Instruct")
    for job in jobs([argument for argument in command if argument not in not_here]):
        with initialize_config_dir(str(CONF), version_base="1.3"):
            cfg = OmegaConf.to_container(compose("config", [*job]), resolve=True)
        model_spec(cfg["model"])
        methods = {name: node for name, node in chosen_methods(cfg).items() if "kvpress" not in str(node)}
        if methods.get("_target_"):
            methods["_target_"] = f"tests.support.{methods['_target_']}"
        assert methods == {"_target_": None} or build_settings(methods, cfg["ratio"], cfg["budget"])


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_other_commands_are_there(page):
    """Of words behind the program's name, those that begin no override; what a changelog calls by an older name too."""
    text = page.read_text(encoding="utf-8")
    named = set(re.findall(r"python -m kvbench ([a-z]\w*)(?![\w@=.])", text))
    assert named <= set(COMMANDS)
    assert page.name == "CHANGELOG.md" or "python -m kvbench." not in text
