"""The machine's memory and cores."""

import os

import psutil
import pytest

from kvbench.utils import host


def test_memory_is_that_of_the_system():
    assert host.memory() == os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert 0 < host.free_memory() <= host.memory()


@pytest.mark.parametrize("found, cores", [(2, 2), (None, os.cpu_count())])
def test_threads_count_where_no_cores_are_known(found, cores, monkeypatch):
    monkeypatch.setattr(psutil, "cpu_count", lambda logical=True: None if logical else found)
    assert host.cores() == cores
