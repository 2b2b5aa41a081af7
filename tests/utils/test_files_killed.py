"""Writes are whole or leave what was there; what a killed process left is removed by the next write."""

import os
import signal
import subprocess
import sys

import pytest

from kvbench.utils.files import appearing, replacing
from tests.support.paths import ROOT

KILLED = """
import os, signal
from pathlib import Path
from kvbench.utils.files import appearing, replacing

with replacing(Path("table.md")) as work, appearing(Path("model")) as folder:
    work.write_text("half")
    (folder / "weights").write_text("half")
    os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture
def abandoned(tmp_path, monkeypatch):
    """A folder with the work files of a process that was killed."""
    monkeypatch.chdir(tmp_path)
    killed = subprocess.run([sys.executable, "-c", KILLED], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(ROOT)})
    assert killed.returncode == -signal.SIGKILL and len(list(tmp_path.iterdir())) == 2
    return tmp_path


def test_the_next_write_removes_what_a_killed_process_left(abandoned):
    with replacing(abandoned / "another.csv") as work:
        work.write_text("whole")
    with appearing(abandoned / "another") as folder:
        (folder / "weights").write_text("whole")
    assert sorted(path.name for path in abandoned.iterdir()) == ["another", "another.csv"]


def test_what_another_write_is_using_stays(tmp_path):
    with replacing(tmp_path / "a") as a, appearing(tmp_path / "model") as model:
        with replacing(tmp_path / "b") as b, appearing(tmp_path / "other"):
            b.write_text("b")
        a.write_text("a")
        (model / "weights").write_text("w")
    assert [(tmp_path / name).read_text() for name in ("a", "b", "model/weights")] == ["a", "b", "w"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "model", "other"]


def test_files_of_others_with_a_dot_stay(tmp_path):
    for name in (".table.md.123", ".hidden", ".making"):
        (tmp_path / name).write_text("theirs")
    with replacing(tmp_path / "table.md") as work:
        work.write_text("ours")
    assert len(list(tmp_path.iterdir())) == 4
