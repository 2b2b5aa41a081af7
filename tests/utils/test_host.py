"""The machine's memory and cores, as psutil has them and as tables of Linux say."""

import os

import psutil
import pytest

from kvbench.utils import host


def test_memory_and_cores_are_those_of_psutil():
    assert host.memory() == psutil.virtual_memory().total
    assert 0 < host.free_memory() <= host.memory()
    assert host.cores() == (psutil.cpu_count(logical=False) or os.cpu_count())


@pytest.mark.parametrize(
    "lines, free", [("MemTotal: 90 kB\nMemAvailable:   40 kB\n", 40 * 1024), ("MemTotal: 90 kB\n", None), (None, None)]
)
def test_free_memory_is_what_linux_calls_available_or_all_of_it(lines, free, tmp_path, monkeypatch):
    if lines is not None:
        (tmp_path / "meminfo").write_text(lines)
    monkeypatch.setattr(host, "MEMINFO", tmp_path / "meminfo")
    assert host.free_memory() == (host.memory() if free is None else free)


@pytest.mark.parametrize("siblings, cores", [(["0,2", "1,3", "0,2", "1,3"], 2), (["0", "1", "2"], 3), ([], None)])
def test_threads_of_one_core_count_once(siblings, cores, tmp_path, monkeypatch):
    for number, threads in enumerate(siblings):
        (tmp_path / f"cpu{number}" / "topology").mkdir(parents=True)
        (tmp_path / f"cpu{number}" / "topology" / "core_cpus_list").write_text(f"{threads}\n")
    monkeypatch.setattr(host, "CPUS", tmp_path)
    assert host.cores() == (os.cpu_count() if cores is None else cores)
