"""A plain installation: what it lacks is in an extra that errors name, and needles run without."""

import ast
import json
import re
import subprocess
import sys
import tomllib
from importlib.metadata import packages_distributions

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from kvbench.configuration import conf, configured
from kvbench.engines import OpenAI
from kvbench.errors import UserError
from kvbench.metrics.backends import google_rouge
from kvbench.records.record_files import read_file
from kvbench.records.store import PACK, RECORDS, read_records
from kvbench.runner.prerequisites import check_machine
from kvbench.runner.request import build_request
from kvbench.utils import extras
from kvbench.utils.row_files import read_file as read_rows
from tests.support.command import command_line, kvbench
from tests.support.paths import ROOT
from tests.support.runs import arguments

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
OPTIONAL = PROJECT["optional-dependencies"]
SPEED = ["benchmark=speed", "model=llama3-8b-random"]
# What a part of kvbench imports where it is: other extras, what they bring, engines, IPython, Triton.
WHERE_THERE = {
    "IPython",
    "kvpress",
    "llama_cpp",
    "lm_eval",
    "math_verify",
    "openvino",
    "openvino_genai",
    "packaging",
    "submitit",
    "tqdm",
    "tree_sitter",
    "triton",
    "vllm",
}


def distributions(requirements) -> set[str]:
    return {canonicalize_name(Requirement(one).name) for one in requirements}


def test_extras_have_what_errors_promise_and_the_core_has_none_of_it():
    known = packages_distributions()
    for extra, modules in extras.EXTRAS.items():
        assert distributions(OPTIONAL[extra]) == {canonicalize_name(known[module][0]) for module in modules}
        assert not distributions(OPTIONAL[extra]) & distributions(PROJECT["dependencies"])
    (everything,) = OPTIONAL["all"]
    assert Requirement(everything).extras == set(extras.EXTRAS)


@pytest.mark.heavy
def test_every_import_of_the_package_is_a_dependency_or_of_an_extra():
    core = {module for module, names in packages_distributions().items()
            if {canonicalize_name(name) for name in names} & distributions(PROJECT["dependencies"])}  # fmt: skip
    allowed = core | set(extras.EXTRA_OF) | WHERE_THERE | set(sys.stdlib_module_names) | {"kvbench"}
    for path in (ROOT / "kvbench").rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            names += [node.module] if isinstance(node, ast.ImportFrom) and node.level == 0 else []
            assert {name.partition(".")[0] for name in names} <= allowed, path


@pytest.fixture
def without(monkeypatch):
    """Modules that are not found any more."""
    hidden, find = set(), extras.find_spec
    monkeypatch.setattr(extras, "find_spec", lambda name: None if name in hidden else find(name))
    monkeypatch.setenv("COLUMNS", "300")
    return hidden.update


@pytest.mark.parametrize(
    "module, call",
    [
        ("rouge_score", lambda folder: google_rouge("rouge1", "a", "a")),
        ("rouge_score", lambda folder: build_request(configured(["benchmark=niah", "benchmark.needle=sentence"]))),
        ("wandb", lambda folder: check_machine(configured(["wandb.mode=offline"]))),
        ("pyarrow", lambda folder: read_file(folder / PACK)),
        ("pyarrow", lambda folder: read_rows(folder / "rows.parquet", {})),
        ("httpx", lambda folder: OpenAI(url="http://127.0.0.1:1/v1").connect(None)),
        ("pynvml", lambda folder: build_request(configured(SPEED))),
    ],
    ids=["a score", "a benchmark", "tracking", "a pack", "data", "a server", "clocks of GPUs"],
)
def test_what_needs_a_package_names_its_extra_in_one_line(module, call, tmp_path, without):
    without({module})
    (tmp_path / "rows.parquet").touch()
    with pytest.raises(UserError) as error:
        call(tmp_path)
    dashed = module.replace("_", "-")
    needed = f"needs {dashed}, which is not installed: pip install 'kvbench[{extras.EXTRA_OF[module]}]'"
    assert needed in str(error.value)


def test_figures_alone_need_matplotlib(without, capsys):
    without({"matplotlib"})
    assert kvbench("figure", "--help") == 0
    assert kvbench("figure", "+experiment=pyramidkv_figure5") == 2
    assert "pip install 'kvbench[plots]'" in capsys.readouterr().err


HIDE = """
from importlib.machinery import PathFinder

find, hidden = PathFinder.find_spec, {hidden!r}
PathFinder.find_spec = staticmethod(
    lambda name, *more: None if name.partition(".")[0] in hidden else find(name, *more)
)
"""


@pytest.mark.heavy
def test_needles_and_generate_need_none_of_them(tiny_folder, tmp_path):
    """In a process that finds none of these modules, nor what only they bring."""
    hidden = {*extras.EXTRA_OF, "datasets", "llvmlite", "absl", "six", "joblib"}
    (tmp_path / "sitecustomize.py").write_text(HIDE.format(hidden=hidden))
    environment = {"PYTHONPATH": f"{tmp_path}:{ROOT}", "PATH": "/usr/bin:/bin", "HF_HUB_OFFLINE": "1", "COLUMNS": "300"}
    environment["OMP_NUM_THREADS"] = "1"
    given = arguments(
        tiny_folder, tmp_path / "runs", "method=[full,snapkv,kivi]", "method.kivi.storage.group=8", "limit=1"
    )
    code = (
        "import kvbench; kvbench.compress; from kvbench.methods import Eviction; "
        "from kvbench.__main__ import main; main()"
    )
    command = [sys.executable, "-c", code, *given]
    done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "no figures: they need matplotlib, which is not installed: pip install 'kvbench[plots]'" in done.stderr
    (folder,) = (path.parent for path in (tmp_path / "runs").rglob(RECORDS))
    assert len(read_records(folder / RECORDS)[0]) == 4 and (folder / "table.md").is_file()
    assert not list(folder.glob("*.png"))


LOADED = "import sys, json; {}; print(json.dumps(sorted(name for name in sys.modules)))"


def loaded(code: str) -> set[str]:
    """The modules that a new process has after some code."""
    done = subprocess.run(
        [sys.executable, "-c", LOADED.format(code)], cwd=ROOT, capture_output=True, text=True, check=True
    )
    return set(json.loads(done.stdout.splitlines()[-1]))


def test_importing_kvbench_loads_the_standard_library_alone():
    more = loaded("import kvbench") - loaded("pass")
    assert {name.partition(".")[0] for name in more} <= {"kvbench"} | set(sys.stdlib_module_names)
    assert {name for name in more if name.startswith("kvbench")} == {
        "kvbench",
        "kvbench.utils",
        "kvbench.utils.release",
    }


def test_help_loads_no_library_that_takes_seconds():
    more = loaded("from kvbench.__main__ import dispatch; dispatch(['--help'])")
    heavy = {"numpy", "pandas", "pydantic", "torch", "transformers", *extras.EXTRA_OF}
    assert not heavy & {name.partition(".")[0] for name in more}
    assert len(more) < 450  # 417 in 2026, 90 for importlib.metadata, which finds plug-ins; a new one is worth a look


def test_the_guide_names_every_extra():
    text = (ROOT / "docs" / "install.md").read_text(encoding="utf-8")
    assert set(re.findall(r"`\[([\w-]+)\]`", text)) >= set(OPTIONAL) - {"dev"}


def test_the_overview_reads_no_file_of_a_choice_but_of_methods(monkeypatch, capsys):
    """The others are over a hundred, whose names it has alone."""
    read = conf._text
    named = set()
    monkeypatch.setattr(
        "kvbench.configuration.conf._text", lambda path, group, key: named.add(group) or read(path, group, key)
    )
    assert command_line("--help") == 0
    assert named == {"method"} and "snapkv" in capsys.readouterr().out
