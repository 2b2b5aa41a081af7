"""Where kvbench keeps its cache, hashes and names of folders; writes that are whole or leave what was there."""

import hashlib
import os
import pwd
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from kvbench.utils.files import appearing, below, cache_root, folder_name, replacing
from kvbench.utils.hashing import file_hash
from tests.support.paths import ROOT


def test_an_empty_variable_is_none(monkeypatch):
    monkeypatch.setenv("KVBENCH_CACHE", "")
    assert cache_root().is_absolute() and cache_root().name == "kvbench"


def test_without_a_home_directory_the_cache_is_a_temporary_folder_and_not_one_named_tilde(monkeypatch, tmp_path):
    for name in ("KVBENCH_CACHE", "XDG_CACHE_HOME", "HOME"):
        monkeypatch.delenv(name, raising=False)

    def no_user(number):
        raise KeyError(number)

    monkeypatch.setattr(pwd, "getpwuid", no_user)
    assert cache_root().is_absolute() and "~" not in str(cache_root())
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache_root() == tmp_path / "kvbench"


@pytest.mark.parametrize("cache", ["x" * 300, "/proc/1/mem/cache"], ids=["too long a name", "no folder"])
def test_a_cache_that_cannot_be_read_costs_only_time(cache, monkeypatch, tmp_path):
    monkeypatch.setenv("KVBENCH_CACHE", cache)
    path = tmp_path / "weights"
    path.write_bytes(b"weights")
    assert file_hash(path) == hashlib.sha256(b"weights").hexdigest()


@pytest.mark.parametrize("text", ["../../etc", "org/model", "a\0b", "tab\tand\nline", "back\\slash", "\udcff"])
def test_a_name_of_any_text_is_one_folder(text):
    name = folder_name(f"niah-{text}")
    assert Path(name).name == name and name.isprintable() and name.encode()


def test_ordinary_names_stay():
    assert folder_name("niah-mistral-7b-v0.2-1a2b") == "niah-mistral-7b-v0.2-1a2b"


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


def test_a_folder_that_was_moved_and_left_a_link_is_below_its_old_place(tmp_path):
    runs, disk = tmp_path / "runs", tmp_path / "disk"
    for folder in (runs / "a", disk / "b"):
        (folder / "manifests").mkdir(parents=True)
    for name, target in {"b": disk / "b", "again": disk / "b", "latest": runs / "a", "up": tmp_path}.items():
        (runs / name).symlink_to(target)
    assert below(runs, "manifests") == [runs / "a" / "manifests", runs / "again" / "manifests"]
    assert below(tmp_path / "none", "manifests") == []
