"""The versions that README, docs, CONTRIBUTING.md and pyproject.toml claim are those that CI tests."""

import re
import shlex
import tomllib

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.version import Version

from kvbench import __version__
from tests.support.paths import ROOT


def text(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


README, INSTALL, MAKEFILE = text("README.md"), text("docs/install.md"), text("Makefile")
CONTRIBUTING = text("CONTRIBUTING.md")
PROJECT = tomllib.loads(text("pyproject.toml"))["project"]
JOBS, NIGHT = (
    job["strategy"]["matrix"]["include"] for job in yaml.safe_load(text(".github/workflows/ci.yml"))["jobs"].values()
)
TARGETS, NIGHTLY = (
    re.search(rf"^{name}=\((.*)\)$", text(".ci/run"), re.MULTILINE)[1].split() for name in ("targets", "nightly")
)
NEWEST = "CONSTRAINTS= TORCH=torch"


def oldest(package: str) -> str:
    """The release that pyproject.toml asks for at least."""
    (found,) = (one for one in map(Requirement, PROJECT["dependencies"]) if one.name == package)
    return next(bound.version for bound in found.specifier if bound.operator == ">=")


def pinned(package: str, file: str) -> str:
    return re.search(rf"^{package}==(\S+)$", text(file), re.MULTILINE)[1]


def minor(version: str) -> str:
    return ".".join(version.split(".")[:2])


def made(job: dict) -> list[str]:
    """The targets that a job makes by .ci/run."""
    command = shlex.split(job["run"].rpartition(".ci/run")[2])
    return NIGHTLY if command == ["nightly"] else command or TARGETS


PYTHONS = sorted((job["python"] for job in JOBS), key=Version)


def test_one_version_of_kvbench_is_stated_everywhere():
    cited = yaml.safe_load(text("CITATION.cff"))
    assert PROJECT["version"] == __version__ == cited["version"]
    assert cited["license"] == PROJECT["license"]
    assert re.search(r"^## (\S+)", text("CHANGELOG.md"), re.MULTILINE)[1] == __version__


def test_every_python_that_is_claimed_is_tested():
    said = [line.rpartition(" :: ")[2] for line in PROJECT["classifiers"] if line.startswith("Programming Language")]
    assert said == PYTHONS
    assert PROJECT["requires-python"] == f">={PYTHONS[0]}"
    for page in (README, INSTALL):
        assert f"Python {PYTHONS[0]} or later" in " ".join(page.split())
    assert all({"test", "test-fast"} & {*made(job)} for job in JOBS)


def test_the_newest_python_has_the_newest_of_every_package_and_others_what_is_pinned():
    for jobs in (JOBS, NIGHT):
        assert [job["python"] for job in jobs if NEWEST in job["run"]] == [PYTHONS[-1]]
    assert f"`make test {NEWEST}`" in INSTALL
    assert f"Python {PYTHONS[-1]} is tested with the newest release of every package" in " ".join(INSTALL.split())
    assert f"pinned in `constraints.txt`, on Python {' and '.join(PYTHONS[:-1])}." in INSTALL
    for name in ("CONSTRAINTS", "TORCH"):
        assert re.search(rf"^{name} +\?=", MAKEFILE, re.MULTILINE)


def test_torch_and_transformers_are_those_of_the_constraints():
    assert f"PyTorch {oldest('torch')} or later and transformers {oldest('transformers')} or later" in INSTALL
    assert f"torch=={pinned('torch', 'constraints.txt')}" in MAKEFILE
    assert minor(pinned("torch", "constraints.txt")) == oldest("torch")
    newest = minor(pinned("transformers", "constraints.txt"))
    assert f"Of transformers, {oldest('transformers')} to {newest} are tested;" in INSTALL
    assert minor(pinned("transformers", "constraints-kvpress.txt")) == oldest("transformers")


def test_one_job_makes_every_check_and_one_at_night_what_takes_longer():
    phony = re.search(r"^\.PHONY: (.*)$", MAKEFILE, re.MULTILINE)[1].split()
    parts = {"test-kvpress", "test-lm-eval"}  # test-integrations makes them
    waits = {"test-fast", "test-engines"}  # a part of test, and what builds llama.cpp first
    checks = {"docs", *(name for name in phony if name.startswith("test"))} - parts - waits
    assert sorted(TARGETS + NIGHTLY) == sorted(checks)
    assert [made(job) for job in JOBS].count(TARGETS) == 1 and NIGHTLY in [made(job) for job in NIGHT]
    told = CONTRIBUTING.partition("\n\n    ")[2].partition("\n\n")[0]
    assert checks <= set(re.findall(r"make ([\w-]+) ", told))
    said = {name: re.search(rf"^    \.ci/run{name} +# .*: (.*)$", told, re.MULTILINE)[1] for name in ("", " nightly")}
    assert all(name in said[""] for name in TARGETS) and all(name in said[" nightly"] for name in NIGHTLY)


@pytest.mark.parametrize("target", ["install-extras", "test-fast", *TARGETS, *NIGHTLY])
def test_every_target_of_continuous_integration_is_one(target):
    assert re.search(rf"^{target}:", MAKEFILE, re.MULTILINE)
