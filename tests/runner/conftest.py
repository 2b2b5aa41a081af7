"""The fixture that tests of sweeps share."""

import sys

import pytest

from kvbench import __main__ as command


@pytest.fixture
def sweep(monkeypatch, capsys, tmp_path):
    """The command with -m in an empty working directory: (exit code, output, lines of standard error)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HYDRA_FULL_ERROR", "0")
    monkeypatch.setenv("COLUMNS", "200")

    def run(*overrides: str) -> tuple[int, str, list[str]]:
        monkeypatch.setattr(sys, "argv", ["kvbench", "-m", *overrides])
        code = 0
        try:
            command.main()
        except SystemExit as stopped:
            code = stopped.code
        told = capsys.readouterr()
        return code, told.out, told.err.splitlines()

    return run
