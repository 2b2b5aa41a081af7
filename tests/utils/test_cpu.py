"""The CPU's name on Linux, on ARM and on a Mac."""

import platform
import subprocess
from types import SimpleNamespace

import pytest

from kvbench.utils import cpu

X86 = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 9B45\n\nprocessor\t: 1\nmodel name\t: other\n"
ARM = "processor\t: 0\nBogoMIPS\t: 243.75\nCPU implementer\t: {}\nCPU part\t: {}\n\nprocessor\t: 1\n"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    def describe(cpuinfo: str | None, system: str = "Linux", processor: str = "", machine: str = "") -> None:
        monkeypatch.setattr(cpu, "CPUINFO", tmp_path / "cpuinfo")
        if cpuinfo is not None:
            (tmp_path / "cpuinfo").write_text(cpuinfo)
        for name, value in {"system": system, "processor": processor, "machine": machine}.items():
            monkeypatch.setattr(platform, name, lambda value=value: value)

    return describe


@pytest.mark.parametrize(
    "cpuinfo, name",
    [
        (X86, "AMD EPYC 9B45"),
        (ARM.format("0x41", "0xd4f"), "ARM Neoverse-V2"),
        (ARM.format("0x41", "0xfff"), "ARM part 0xfff"),
        (ARM.format("0x99", "0x001"), "maker 0x99 part 0x001"),
    ],
)
def test_proc_names_it(machine, cpuinfo, name):
    machine(cpuinfo, processor="another", machine="aarch64")
    assert cpu.cpu_name() == name


def test_a_mac_is_asked(machine, monkeypatch):
    machine(None, system="Darwin", processor="arm")
    monkeypatch.setattr(subprocess, "run", lambda command, **_: SimpleNamespace(stdout="Apple M2\n"))
    assert cpu.cpu_name() == "Apple M2"


def test_a_mac_that_does_not_answer_has_pythons_name(machine, monkeypatch):
    def fails(command, **_):
        raise subprocess.TimeoutExpired(command, 10)

    machine(None, system="Darwin", processor="arm")
    monkeypatch.setattr(subprocess, "run", fails)
    assert cpu.cpu_name() == "arm"


@pytest.mark.parametrize("cpuinfo", [None, "", "processor\t: 0\n"])
def test_anything_else_has_pythons_name(machine, cpuinfo):
    machine(cpuinfo, machine="riscv64")
    assert cpu.cpu_name() == "riscv64"
    machine(cpuinfo)
    assert cpu.cpu_name() == "unknown"
