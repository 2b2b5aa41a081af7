"""Where kvbench keeps its cache, what hashes are remembered there, and names of folders."""

import hashlib
import pwd
from pathlib import Path

import pytest

from kvbench.utils.files import cache_root, folder_name
from kvbench.utils.hashing import file_hash


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
