"""The CPU's name, from what each system tells."""

import pytest

from kvbench.utils import cpu

X86 = "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: AMD EPYC 9B45\n\nprocessor\t: 1\nmodel name\t: other\n"
ARM = "processor\t: 0\nBogoMIPS\t: 50.00\nCPU implementer\t: 0x41\nCPU part\t: 0xd0c\n"


@pytest.fixture
def machine(tmp_path, monkeypatch):
    """A machine with this /proc/cpuinfo (None: no such file) and these commands' outputs."""

    def make(cpuinfo: str | None, **outputs: str) -> None:
        path = tmp_path / "cpuinfo"
        if cpuinfo is not None:
            path.write_text(cpuinfo)
        monkeypatch.setattr(cpu, "CPUINFO", path)
        monkeypatch.setattr(cpu, "_output", lambda name, *_: outputs.get(name, ""))
        monkeypatch.setattr(cpu.platform, "machine", lambda: "aarch64")
        monkeypatch.setattr(cpu.platform, "processor", lambda: "")

    return make


@pytest.mark.parametrize(
    ("cpuinfo", "outputs", "name"),
    [
        (X86, {}, "AMD EPYC 9B45"),
        (None, {"sysctl": "Apple M3 Pro"}, "Apple M3 Pro"),
        (ARM, {"lscpu": "Architecture: aarch64\nModel name:   Neoverse-N1\n"}, "Neoverse-N1"),
        (ARM, {}, "aarch64, implementer 0x41, part 0xd0c"),
        (None, {}, "aarch64"),
    ],
)
def test_the_name_is_the_best_that_the_machine_tells(machine, cpuinfo, outputs, name):
    machine(cpuinfo, **outputs)
    assert cpu.cpu_name() == name


def test_a_command_that_is_missing_or_fails_tells_nothing():
    assert cpu._output("no-such-command-anywhere") == cpu._output("false") == ""
