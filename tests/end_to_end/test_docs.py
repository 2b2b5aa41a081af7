"""The documentation names what is there, and points at nothing that is not."""

import re
import shlex
import sys

import pytest
from hydra import compose, initialize_config_dir

from kvbench.config import CONF, options
from kvbench.configuration import resolved
from kvbench.evaluation.settings import build_settings
from kvbench.papers.command_line import jobs
from kvbench.records import load
from kvbench.runner.help import COMMANDS
from kvbench.utils.model_override import expanded
from tests.support.command import command_line
from tests.support.paths import ROOT

PAGES = [
    ROOT / "README.md",
    ROOT / "CHANGELOG.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "scripts" / "README.md",
    *(ROOT / "docs").glob("*.md"),
]


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


def test_every_preset_of_a_method_is_described_by_its_file():
    text = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8").partition("## Presets")[2]
    abouts = options("method")
    for name, about in re.findall(r"^\| `(\w+)` \| (.*) \|$", text, re.MULTILINE):
        assert about == abouts[name]


def test_every_model_is_told_of():
    text = (ROOT / "docs" / "models.md").read_text(encoding="utf-8")
    assert [path.stem for path in (CONF / "model").glob("*.yaml") if f"`{path.stem}`" not in text] == []


def test_the_method_of_the_readme_is_the_one_that_is_tested():
    code = (ROOT / "tests" / "support" / "my_method.py").read_text(encoding="utf-8")
    assert code.strip() in (ROOT / "README.md").read_text(encoding="utf-8")


def test_the_method_of_the_guide_that_acts_while_decoding_is_the_one_that_is_tested():
    code = (ROOT / "tests" / "support" / "my_decoding.py").read_text(encoding="utf-8")
    assert f"```python\n# my_decoding.py\n{code}```\n" in (ROOT / "docs" / "adding-a-method.md").read_text(
        encoding="utf-8"
    )


# --- the file tree of CONTRIBUTING.md


def tree() -> dict[str, str]:
    """The entries of the package in the annotated tree, each with what is said of it."""
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    package = re.search(r"^kvbench/\n((?:  .*\n)+)", text, re.MULTILINE)[1]
    return {name.rstrip("/"): about for name, about in re.findall(r"^  (\S+) +(.+)$", package, re.MULTILINE)}


def test_the_tree_has_every_entry_of_the_package_and_no_other():
    entries = {path.name for path in (ROOT / "kvbench").iterdir() if path.name not in ("__init__.py", "__pycache__")}
    assert set(tree()) == entries
    assert all(tree().values())


def test_modules_that_the_tree_names_are_there():
    named = {
        (entry, name)
        for entry, about in tree().items()
        for name in re.findall(r"\b[a-z_]+\b", about.partition("folder: ")[2])
    }
    assert named >= {("runner", "request"), ("runner", "outputs")}
    assert all((ROOT / "kvbench" / entry / f"{name}.py").exists() for entry, name in named)


# --- a benchmark of one's own, as docs/adding-a-benchmark.md has it


@pytest.fixture
def my_benchmark(tmp_path, monkeypatch):
    """The guide's two blocks of code as files; the folder for --config-dir."""
    guide = (ROOT / "docs" / "adding-a-benchmark.md").read_text(encoding="utf-8")
    module, node = re.findall(r"```(?:python|yaml)\n(.*?)```", guide, re.DOTALL)[:2]
    (tmp_path / "my_benchmark.py").write_text(module, encoding="utf-8")
    (tmp_path / "benchmark").mkdir()
    (tmp_path / "benchmark" / "code_in_line.yaml").write_text(node, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    return tmp_path


def test_the_benchmark_of_the_guide_runs_and_is_short(my_benchmark, tiny_folder, capsys):
    small = ["benchmark=code_in_line", "benchmark.lines=20", "limit=2", "method=[full,snapkv]", "ratio=0.5"]
    model = [f"model.path={tiny_folder}", "model.shape=null", "model.max_length=4096"]
    assert command_line("--config-dir", my_benchmark, *small, *model) == 0, capsys.readouterr().err
    records = load(my_benchmark / "runs")
    assert len(records) == 4 and set(records["benchmark"]) == {"code_in_line"}
    assert all({*scores} == {"exact"} for scores in records["scores"]) and records["line"].notna().all()
    body = (my_benchmark / "my_benchmark.py").read_text().partition("@checked")[2]
    assert len([line for line in body.splitlines() if line.strip()]) <= 25


def test_a_mistake_in_its_keys_is_one_line(my_benchmark, capsys):
    assert command_line("--config-dir", my_benchmark, "benchmark=code_in_line", "benchmark.lines=0") == 2
    assert "benchmark.lines=0 must be an integer of at least 1" in capsys.readouterr().err


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
    return list(dict.fromkeys(filter(None, found)))


def test_there_are_commands_of_every_kind():
    kinds = {argument.partition("=")[0] for command in commands() for argument in command}
    assert kinds >= {"-m", "model", "method", "benchmark", "+experiment", "probe", "press"}
    assert kinds >= {"storage@method.snapkv.storage", "scoring@method.pyramidkv.scoring"}


# Commands beside the run whose arguments are a run's; of the others, any arguments are their own.
OVERRIDES = {"table", "figure"}
RUNS = [
    command[1:] if command[0] in OVERRIDES else command
    for command in commands()
    if command[0] in OVERRIDES or command[0] not in COMMANDS
]


@pytest.mark.parametrize("command", RUNS, ids=" ".join)
def test_a_command_of_the_documentation_is_one(command):
    """As far as it can be known without the data, the models and the packages that it names."""
    not_here = (
        "-m",
        "--help",
        "published=true",
        "model.path=/models/Meta-Llama-3-8B-Instruct",
        "model=/models/my-model",
    )
    if "--config-dir" in command:
        return  # the guide's own files: see above
    for job in jobs([argument for argument in command if argument not in not_here]):
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
