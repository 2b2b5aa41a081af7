"""What the tests of engines share."""

import os
import sys
from pathlib import Path

import pytest

from kvbench.engines import http
from tests.support import fake_worker

PROSE = """
A lighthouse keeper wrote down the weather every morning for forty years. On most days he wrote that the sea
was calm, and on some that it was not. When he died, the books went to the university, where nobody opened
them for a long time. Then a student who was looking for old measurements of the wind found that the keeper
had also noted the height of the tide, the number of ships that passed, and the names of the birds that he
saw. The notes turned out to be the longest record of the coast that anyone had kept, and they showed that the
winters had become shorter and the storms stronger than before.
""".lstrip()


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    """Pauses between attempts are as long as a test needs: not at all."""
    monkeypatch.setattr(http, "FIRST", 0.0)


@pytest.fixture
def environment(tmp_path):
    """A folder like an environment, whose Python runs the fake worker; call it with a mode of that."""

    def made(mode: str = "well") -> Path:
        python = tmp_path / "venv" / "bin" / "python"
        python.parent.mkdir(parents=True, exist_ok=True)
        python.write_text(f"#!/bin/sh\nexec {sys.executable} {fake_worker.__file__} '{mode}'\n")
        os.chmod(python, 0o755)
        return tmp_path / "venv"

    return made


@pytest.fixture
def gguf(tmp_path) -> Path:
    (tmp_path / "model.gguf").write_bytes(b"GGUF")
    return tmp_path / "model.gguf"


@pytest.fixture
def window(tmp_path) -> list[str]:
    """A run over one window of a text: 96 tokens of context, and 16 that are scored."""
    (tmp_path / "text.txt").write_text(PROSE)
    own = ["benchmark=text", f"benchmark.path={tmp_path / 'text.txt'}", "benchmark.length=96", "benchmark.scored=17"]
    return [*own, "benchmark.windows=1", f"output_dir={tmp_path / 'runs'}"]
