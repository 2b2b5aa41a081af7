"""A terminal says what a command is at while it reads thousands of records or draws hundreds of panels."""

import io

import pytest

from kvbench.runner import run_figures
from kvbench.utils import console
from kvbench.utils.console import SafeConsole
from tests.support.command import command_line


@pytest.fixture
def terminal(monkeypatch) -> io.StringIO:
    """What standard error shows, were it a terminal."""
    shown = io.StringIO()
    monkeypatch.setattr(console, "err", SafeConsole(file=shown, force_terminal=True, width=200))
    return shown


@pytest.mark.parametrize(("command", "words"), [("verify", "checking "), ("report", "reading 1 run")])
def test_a_command_that_reads_all_records_says_so(command, words, undisturbed, tmp_path, terminal):
    assert command_line(command, undisturbed, "--out", tmp_path / "page.html") == 0
    assert words in terminal.getvalue()


def test_a_run_says_that_it_draws(terminal):
    draw = run_figures.drawing(lambda: ["drawn"])
    assert draw() == ["drawn"] and "drawing figures" in terminal.getvalue()
