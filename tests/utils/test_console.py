"""A console that cannot be written costs its output and nothing else."""

import io
import os
import subprocess
import sys

import pytest

from kvbench.utils import console
from tests.support.paths import ROOT


@pytest.fixture(params=["full disk", "closed pipe", "closed"])
def broken(request):
    """Standard output that takes nothing."""
    if request.param == "full disk":
        stream = os.fdopen(os.open("/dev/full", os.O_WRONLY), "w")
    elif request.param == "closed pipe":
        reader, writer = os.pipe()
        os.close(reader)
        stream = os.fdopen(writer, "w")
    else:
        stream = io.StringIO()
        stream.close()
    yield request.param, stream
    stream.close()


def test_a_broken_output_raises_nothing_and_a_full_disk_is_named_once(broken, capfd, monkeypatch):
    kind, stream = broken
    monkeypatch.setattr(sys, "stdout", stream)
    for _ in range(3):
        console.print_line("a line")
        console.out.print("[bold]another[/]")
    told = capfd.readouterr().err
    assert told.count("standard output cannot be written") == (kind == "full disk")
    assert ("No space left on device" in told) == (kind == "full disk")


@pytest.mark.parametrize("encoding", ["ascii", "latin-1"])
def test_characters_that_a_locale_lacks_are_replaced(encoding, monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding=encoding, write_through=True))
    console.print_line("0.5 – 0.7 · … \udcff")
    assert written.getvalue().startswith(b"0.5 ? 0.7 ")


def test_a_surrogate_is_replaced_on_utf_8_too(monkeypatch):
    written = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(written, encoding="utf-8", write_through=True))
    console.print_line("caf\udce9 é")
    assert written.getvalue() == "caf? é\n".encode()


@pytest.mark.heavy
@pytest.mark.parametrize("shell", ["| head -c 1", "> /dev/full", ">&-", "2>&-", "| true"])
def test_a_command_ends_well_whatever_becomes_of_its_output(shell):
    command = f"set -o pipefail; {sys.executable} -m kvbench --help {shell}"
    done = subprocess.run(["bash", "-c", command], cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "Traceback" not in done.stderr and "Exception ignored" not in done.stderr
