"""Under continuous integration a skipped test is a failure, unless the job may lack what it needs."""

import os
import subprocess
import sys

import pytest

from tests.support.paths import ROOT
from tests.support.skips import needed, objection

MODULE = """
import pytest

def test_passes(): pass

def test_lacks_slurm(): pytest.skip("no Slurm: sbatch")

def test_lacks_nothing(): pytest.skip("one score for a KV head")

@pytest.mark.xfail
def test_is_expected_to_fail(): assert False
"""
FILE_WIDE = """
import pytest

pytest.importorskip("a_package_that_nobody_has", reason="kvpress is not installed; make test-integrations runs this")

def test_never_runs(): pass
"""


@pytest.fixture
def run(tmp_path):
    """Run the two files above with these variables: the process, and what it left out."""
    (tmp_path / "test_some.py").write_text(MODULE, encoding="utf-8")
    (tmp_path / "test_file_wide.py").write_text(FILE_WIDE, encoding="utf-8")
    left_out = tmp_path / "left out"

    def started(**variables: str) -> tuple[subprocess.CompletedProcess, str]:
        others = {name: value for name, value in os.environ.items() if name not in ("CI", "KVBENCH_MAY_LACK")}
        env = others | {"PYTHONPATH": str(ROOT), "KVBENCH_LEFT_OUT": str(left_out)} | variables
        flags = ["-p", "tests.support.skips", "-p", "no:cacheprovider", "--continue-on-collection-errors", "-q"]
        command = [sys.executable, "-m", "pytest", *flags, str(tmp_path)]
        done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=False)
        return done, left_out.read_text(encoding="utf-8") if left_out.exists() else ""

    return started


def test_elsewhere_tests_may_be_skipped(run):
    done, left_out = run()
    assert done.returncode == 0 and "1 passed, 3 skipped, 1 xfailed" in done.stdout
    assert left_out == "kvpress: 1 skipped\nslurm: 1 skipped\n"


def test_in_continuous_integration_a_skip_is_a_failure(run):
    done, _ = run(CI="true")
    assert done.returncode == 1 and "1 failed, 1 passed, 1 skipped, 1 xfailed, 1 error" in done.stdout
    assert "skipped for want of slurm, which KVBENCH_MAY_LACK does not name: Skipped: no Slurm: sbatch" in done.stdout
    assert "skipped for want of kvpress" in done.stdout


def test_what_a_job_may_lack_may_be_skipped(run):
    done, left_out = run(CI="true", KVBENCH_MAY_LACK="slurm kvpress")
    assert done.returncode == 0 and left_out == "kvpress: 1 skipped\nslurm: 1 skipped\n"


def test_a_reason_that_nobody_listed_is_refused():
    with pytest.raises(ValueError, match="does not list: no oven here"):
        needed("no oven here")
    assert "does not list" in objection("no oven here", ["slurm"])
