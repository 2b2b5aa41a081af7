"""What a manifest says of the process: versions, hardware, and the variables that change what a CPU computes."""

import os

import numba
import pydantic
import torch

from kvbench.records.schema import check_manifest
from kvbench.utils.environment import environment


def test_versions_of_what_computes_and_of_what_checks_records_are_named():
    packages = environment()["packages"]
    assert packages["numba"] == numba.__version__
    assert packages["pydantic"] == pydantic.VERSION
    assert packages["torch"] in (torch.__version__, torch.__version__.partition("+")[0])  # PyPI names no build


def test_the_cpu_and_what_torch_uses_of_it_are_named():
    hardware = environment()["hardware"]
    assert hardware["cpu"]
    assert hardware["cpu_capability"] == torch.backends.cpu.get_cpu_capability()


def test_variables_that_change_what_a_cpu_computes_are_named_and_no_others(monkeypatch):
    for name in [name for name in os.environ if name.startswith("OMP_")]:
        monkeypatch.delenv(name)
    given = {
        "ATEN_CPU_CAPABILITY": "avx2",
        "MKL_CBWR": "COMPATIBLE",
        "ONEDNN_MAX_CPU_ISA": "SSE41",
        "OMP_NUM_THREADS": "1",
    }
    for name, value in {**given, "NUMBA_CPU_NAME": "generic", "HF_TOKEN": "secret", "MY_OMP_": "1"}.items():
        monkeypatch.setenv(name, value)
    found = environment()["variables"]
    assert found.items() >= given.items() and found["NUMBA_CPU_NAME"] == "generic"
    assert not {"HF_TOKEN", "MY_OMP_"} & found.keys()


def test_the_folder_of_what_numba_compiled_changes_nothing_and_is_not_named():
    """A second run of a process had it, and with it a folder of the machine: kvbench sets it where Numba is used."""
    import kvbench.methods.spindlekv.ops.compiled.loops  # noqa: F401

    assert "NUMBA_CACHE_DIR" in os.environ and "NUMBA_CACHE_DIR" not in environment()["variables"]


def test_a_value_that_is_no_text_can_be_written(monkeypatch):
    monkeypatch.setitem(os.environ, "OMP_X", os.fsdecode(b"a\xff"))
    found = environment()["variables"]
    assert found["OMP_X"] == "a?"
    assert check_manifest({"run": "1", "variables": found})["variables"] == found
