"""What a machine may lack: skipped by name, and failed in continuous integration unless the job allows it."""

import os
import subprocess
import sys

import pytest

from tests.support.needs import NAMES, need, needs, packages
from tests.support.paths import ROOT


@pytest.fixture
def ci(monkeypatch):
    """Set what a job says."""

    def say(ci: str | None, allowed: str | None) -> None:
        for name, value in {"CI": ci, "KVBENCH_ALLOWED_SKIPS": allowed}.items():
            monkeypatch.delenv(name, raising=False)
            if value is not None:
                monkeypatch.setenv(name, value)

    return say


def test_nothing_is_skipped_where_nothing_is_lacking(ci):
    ci("true", None)
    need("slurm", "")


@pytest.mark.parametrize("job", [(None, None), ("false", None), ("true", "slurm"), ("true", "latex slurm")])
def test_what_is_lacking_is_skipped_on_a_machine_of_ones_own_and_where_the_job_names_it(ci, job):
    ci(*job)
    with pytest.raises(pytest.skip.Exception, match="needs slurm: no sbatch"):
        need("slurm", "no sbatch")


@pytest.mark.parametrize("allowed", [None, "", "latex", "slurms"])
def test_what_is_lacking_fails_a_job_that_does_not_name_it(ci, allowed):
    ci("true", allowed)
    with pytest.raises(pytest.fail.Exception, match="needs slurm: no sbatch; KVBENCH_ALLOWED_SKIPS does not name it"):
        need("slurm", "no sbatch")


def test_only_known_names_can_be_lacking():
    for form in (need, needs):
        with pytest.raises(ValueError, match="'slrum'"):
            form("slrum", "")


def test_a_package_that_is_not_installed_is_named():
    assert (
        packages("math", "json", "no_such_module", "nor_this") == f"{NAMES['math']}: no module no_such_module, nor_this"
    )
    assert packages("math", "json") == ""


MARKED = """
import pytest
from tests.support.needs import need, needs

@pytest.fixture
def costly():
    raise RuntimeError("made before anyone looked")

@needs("latex", "no pdflatex")
def test_marked(costly): ...

@needs("latex", "")
def test_there(): ...
"""
MODULE = """
from tests.support.needs import need
need("triton", "no module triton")
import no_such_module
"""


@pytest.mark.heavy
@pytest.mark.parametrize("ci, outcome, code", [("false", "1 passed, 2 skipped", 0), ("true", "2 errors", 1)])
def test_marks_and_modules_are_skipped_or_failed(tmp_path, ci, outcome, code):
    (tmp_path / "test_marked.py").write_text(MARKED)
    (tmp_path / "test_module.py").write_text(MODULE)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = needs(name, lacking)\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "tests.support.needs", "--continue-on-collection-errors"]
    given = {key: value for key, value in os.environ.items() if not key.startswith(("PYTEST", "KVBENCH"))}
    env = given | {"CI": ci, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([*command, str(tmp_path)], cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == code
    assert outcome in done.stdout
