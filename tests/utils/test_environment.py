"""What a manifest says of the machine that computed."""

import subprocess
import sys

import torch

from kvbench.utils.environment import environment


def test_what_decides_how_numbers_are_computed_is_there(monkeypatch):
    monkeypatch.setenv("ATEN_CPU_CAPABILITY", "avx2")
    monkeypatch.setenv("OMP_NUM_THREADS", "3")
    monkeypatch.setenv("HF_TOKEN", "secret")
    made = environment()
    assert made["variables"].items() >= {("ATEN_CPU_CAPABILITY", "avx2"), ("OMP_NUM_THREADS", "3")}
    assert "HF_TOKEN" not in made["variables"]
    assert made["hardware"]["cpu_capability"] == torch.backends.cpu.get_cpu_capability()
    assert made["hardware"]["cpu"] and made["packages"]["numba"] and made["packages"]["pydantic"]


def test_without_file_locks_one_line_says_what_is_needed():
    """Windows has no fcntl."""
    code = "import sys; sys.modules['fcntl'] = None; import kvbench"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.returncode == 1 and done.stdout == ""
    assert done.stderr.startswith("kvbench runs on Linux and macOS") and done.stderr.count("\n") == 1
