"""What the tests of engines share."""

import os
import sys
from pathlib import Path

import pytest

from kvbench.engines import http
from tests.support import fake_worker
from tests.support.unrendered import render_nothing


@pytest.fixture(autouse=True)
def unrendered(monkeypatch):
    render_nothing(monkeypatch)


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
