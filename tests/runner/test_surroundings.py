"""Names, variables, memory and consoles as a machine may have them: one line each, and no work lost."""

import sys

import pytest
import torch

from kvbench.errors import UserError
from kvbench.runner.job_state import slurm
from kvbench.runner.out_of_memory import out_of_memory
from kvbench.runner.status import state
from tests.support.command import command_line
from tests.support.runs import arguments, compose, reported

pytestmark = pytest.mark.heavy


@pytest.mark.parametrize("value", ["", "abc", "-1", "1.5"])
def test_a_restart_count_of_slurm_that_is_no_number_is_none(value, monkeypatch):
    monkeypatch.setenv("SLURM_JOB_ID", "7")
    monkeypatch.setenv("SLURM_RESTART_COUNT", value)
    assert slurm()["restarts"] == 0


def test_a_job_whose_lock_cannot_be_taken_is_one_line(monkeypatch, tmp_path, capsys):
    monkeypatch.setenv("SLURM_JOB_ID", "7")

    def no_locks(file, patience=0.5):
        raise OSError(37, "No locks available")

    monkeypatch.setattr("kvbench.runner.starting_note.take", no_locks)
    assert command_line("limit=1", f"output_dir={tmp_path}") == 2
    assert "No locks available" in capsys.readouterr().err


def test_status_does_not_call_a_run_killed_whose_lock_it_cannot_read():
    assert state({"status": "running"}, None) == "running or killed"
    assert {state({"status": "running"}, alive) for alive in (True, False)} == {"running", "killed"}
    assert state({"status": "finished"}, None) == "finished"


ON_CPU = (
    "[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to "
    "allocate 1099511627776 bytes. Error code 12 (Cannot allocate memory)"
)


@pytest.mark.parametrize("error", [RuntimeError(ON_CPU), MemoryError(), MemoryError("4 GiB")])
def test_a_machine_without_memory_is_told_as_a_gpu_is(error):
    line = r"^the machine's memory is full while loading x.*; try less$"
    with pytest.raises(UserError, match=line) as told, out_of_memory("loading x", "; try less"):
        raise error
    assert ("1099511627776 bytes" in str(told.value)) == isinstance(error, RuntimeError)


REQUESTED = "CUDA out of memory. Tried to allocate 2.00 GiB"
PIECES = (
    "Of the allocated memory 70.31 GiB is allocated by PyTorch, and 5.02 GiB is reserved by PyTorch but unallocated. "
    "If reserved but unallocated memory is large try setting PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid "
    "fragmentation"
)
OF_GPU = (
    f"{REQUESTED}. GPU 0 has a total capacity of 79.15 GiB of which 1.20 GiB is free. Including non-PyTorch memory, "
    f"this process has 77.94 GiB memory in use. {PIECES}.  See documentation for Memory Management  (https://pytorch.org)"
)


def test_a_gpus_line_keeps_torchs_hint_about_memory_in_pieces():
    with pytest.raises(UserError) as told, out_of_memory("making a record", "; try less"):
        raise torch.OutOfMemoryError(OF_GPU)
    assert str(told.value) == f"the GPU's memory is full while making a record: {REQUESTED}. {PIECES}; try less"


def test_torch_says_it_so():
    with (
        pytest.raises(UserError, match="machine's memory is full while making a record"),
        out_of_memory("making a record"),
    ):
        torch.empty(2**55, dtype=torch.float32)


def test_other_errors_stay_what_they_are():
    with pytest.raises(RuntimeError, match="shapes"), out_of_memory("making a record"):
        raise RuntimeError("shapes do not fit")


@pytest.mark.parametrize("text", ["a\0b", "caf\udce9", "\ud800"])
def test_a_text_that_no_file_can_have_is_refused_with_its_key(text):
    for changes, key in (({"output_dir": text}, "output_dir"), ({"model": {"name": text}}, "model.name")):
        with pytest.raises(UserError, match=f"^{key}='.*' has a NUL or bytes that are not UTF-8") as refused:
            compose().changed(**changes)
        assert str(refused.value).isascii()
    with pytest.raises(UserError, match=r"^benchmark\.tasks="):
        compose().changed(benchmark={"tasks": ["fine", text]})


def test_bytes_on_the_command_line_that_are_not_utf_8_are_one_line(tmp_path, capsys):
    assert command_line(f"output_dir='{tmp_path}/caf\udce9'", "limit=1") == 2
    assert "output_dir=" in (err := capsys.readouterr().err) and "not UTF-8" in err and "Traceback" not in err
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("name", ["../../elsewhere", "org/model", "a b"])
def test_a_models_name_never_leads_out_of_the_output_folder(name, tiny_folder, tmp_path):
    out = tmp_path / "deep" / "runs"
    folder = reported(*arguments(tiny_folder, out, "method=full", "limit=1", f"model.name='{name}'"))
    assert folder.parent == out and (folder / "table.md").exists()
    assert [path.name for path in tmp_path.iterdir()] == ["deep"]


def test_a_full_disk_behind_the_output_costs_no_table(tiny_folder, tmp_path, monkeypatch):
    with open("/dev/full", "w") as full:
        monkeypatch.setattr(sys, "stdout", full)
        folder = reported(*arguments(tiny_folder, tmp_path, "method=full", "limit=1"))
    assert all((folder / name).stat().st_size for name in ("table.md", "table.csv", "heatmap.png", "heatmap.pdf"))


def test_all_files_are_there_before_the_first_table_is_printed(tiny_folder, tmp_path, monkeypatch):
    from kvbench.runner import outputs

    seen = []

    def printed(*args, **kwargs):
        seen.append({path.name for path in tmp_path.glob("*/*") if path.is_file()})

    monkeypatch.setattr(outputs.out, "print", printed)
    reported(*arguments(tiny_folder, tmp_path, "method=full", "limit=1"))
    assert {"table.md", "table.csv", "heatmap.png", "heatmap.pdf"} <= seen[0]
