"""README, docs/install.md, pyproject.toml and the continuous integration name the same versions and commands."""

import re
import tomllib

import pytest
import yaml

from tests.support.paths import ROOT

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
WORKFLOW = yaml.safe_load((ROOT / ".github/workflows/ci.yml").read_text(encoding="utf-8"))
STEPS = [step for job in WORKFLOW["jobs"].values() for step in job["steps"]]


def text(name: str) -> str:
    return " ".join((ROOT / name).read_text(encoding="utf-8").split())


def minor(version: str) -> str:
    """Of 5.23.0: 5.23."""
    return ".".join(version.split(".")[:2])


def pinned(file: str, package: str) -> str:
    return re.search(rf"^{package}==(\S+)$", (ROOT / file).read_text(encoding="utf-8"), re.MULTILINE)[1]


def at_least(package: str) -> str:
    return next(x for x in PROJECT["dependencies"] if x.startswith(f"{package}>=")).partition(">=")[2]


def classified() -> list[str]:
    prefix = "Programming Language :: Python :: "
    return [x.removeprefix(prefix) for x in PROJECT["classifiers"] if x.startswith(prefix)]


def test_the_oldest_python_is_the_same_everywhere_and_tested():
    oldest = PROJECT["requires-python"].removeprefix(">=")
    assert f"Python ≥ {oldest} " in text("README.md") and f"on Python {oldest} with" in text("README.md")
    assert f"needs Python {oldest} or later" in text("docs/install.md")
    assert f"tests Python {oldest}, with" in text("docs/install.md")
    assert classified()[0] == oldest and oldest in pythons()


def test_the_newest_python_is_the_same_everywhere_and_tested_without_constraints():
    newest = classified()[-1]
    assert f"on {newest} with the newest of everything" in text("README.md")
    assert f"and {newest}, with the newest of everything" in text("docs/install.md")
    job = next(job for job in WORKFLOW["jobs"].values() if newest in str(job["steps"]))
    assert any(step.get("run", "").endswith("CONSTRAINTS=") for step in job["steps"])


def pythons() -> set[str]:
    return {step["with"]["python-version"] for step in STEPS if "python-version" in step.get("with", {})}


def test_the_range_of_transformers_is_what_the_pinned_versions_have():
    oldest, newest = (minor(pinned(f, "transformers")) for f in ("constraints-kvpress.txt", "constraints.txt"))
    assert f"transformers {oldest} (`constraints-kvpress.txt`) to {newest} (`constraints.txt`)" in text("README.md")
    assert at_least("transformers") == oldest and f"transformers {oldest} or later" in text("docs/install.md")
    assert f"PyTorch {at_least('torch')} or later" in text("docs/install.md")


@pytest.mark.parametrize(
    "target", sorted(set(re.findall(r"`make (test[\w-]*|docs)`", text("README.md"))) - {"test-slow"})
)
def test_what_readme_says_continuous_integration_runs_it_runs(target):
    lines = (ROOT / ".ci" / "run").read_text(encoding="utf-8").splitlines()
    assert any(line.endswith(f"part make {target}") for line in lines)
    assert any(re.fullmatch(rf"make {target}( .*)?", step.get("run", "")) for step in STEPS)
