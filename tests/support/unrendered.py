"""Figures that are built and saved, but not rendered, for tests of runs: rendering takes longer than the records."""

from pathlib import Path

import pytest
from matplotlib.figure import Figure

from kvbench.figures import style

SIZE = 2**15  # bytes of a file: about those of a rendered one


def write_zeros(figure: Figure, path: Path, **options) -> None:
    Path(path).write_bytes(bytes(SIZE))


@pytest.fixture(autouse=True)
def unrendered(monkeypatch):
    """For all tests of the folder whose conftest.py imports it."""
    monkeypatch.setattr(Figure, "savefig", write_zeros)
    monkeypatch.setattr(style, "_fix_layout", lambda figure: None)
