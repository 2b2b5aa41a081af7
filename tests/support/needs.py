"""What a machine may lack of what tests need: a tool, a package, data. Such tests are skipped, and say why.

With `CI=true` they fail, unless the job names what it goes without: `KVBENCH_ALLOWED_SKIPS="slurm browser"`. So a tool
that is no longer found, or a module that was renamed, cannot turn tests off unseen.
"""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import pytest

NAMES = {
    "browser": "Chromium and its driver",
    "data": "the folder KVBENCH_DATA with the published data of benchmarks",
    "docs": "the environment that builds the documentation's site",
    "gemma3": "the optional model gemma3-270m",
    "guidellm": "GuideLLM in an environment of its own",
    "kvpress": "kvpress, in an environment of its own",
    "latex": "pdflatex",
    "llama.cpp": "llama.cpp in an environment of its own",
    "lm-eval": "lm-eval with its dependencies",
    "math": "math-verify",
    "mount": "the right to mount file systems",
    "openvino": "OpenVINO GenAI in an environment of its own",
    "papers": "the folder KVBENCH_PAPERS with the papers' text",
    "qwen": "the optional model qwen2.5-coder-0.5b",
    "repoqa": "tree-sitter's parsers",
    "slurm": "Slurm and munge, as root",
    "triton": "Triton",
    "vllm": "vLLM in an environment of its own",
}


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Before a test's fixtures are made."""
    for mark in item.iter_markers("needs"):
        need(*mark.args)


def needs(name: str, lacking: str) -> pytest.MarkDecorator:
    """A mark for tests that need one of NAMES. `lacking` says why it is not here; empty where it is."""
    return pytest.mark.needs(known(name), lacking)


def need(name: str, lacking: str) -> None:
    """`needs` for the rest of a test, a fixture, or a module that cannot be imported without it."""
    known(name)
    if lacking:
        skip(name, lacking)


def official(name: str) -> tuple[Path, pytest.MarkDecorator]:
    """A file or folder of the published data of benchmarks, and the mark of tests that need it."""
    path = Path(os.environ.get("KVBENCH_DATA", "/nowhere"), name)
    return path, needs("data", "" if path.exists() else f"KVBENCH_DATA has no {name}")


def packages(name: str, *modules: str) -> str:
    """What is lacking where one of these modules of other projects is not installed."""
    lacking = [module for module in modules if find_spec(module) is None]
    return f"{NAMES[name]}: no module {', '.join(lacking)}" if lacking else ""


def skip(name: str, lacking: str) -> NoReturn:
    reason = f"needs {name}: {lacking}"
    if os.environ.get("CI") == "true" and name not in os.environ.get("KVBENCH_ALLOWED_SKIPS", "").split():
        pytest.fail(f"{reason}; KVBENCH_ALLOWED_SKIPS does not name it", pytrace=False)
    pytest.skip(reason, allow_module_level=True)


def known(name: str) -> str:
    if name not in NAMES:
        raise ValueError(f"tests/support/needs.py has no {name!r}")
    return name
