"""Figures that are built and saved, but not rendered: that takes longer than a tiny run makes its records."""

from contextlib import contextmanager
from pathlib import Path

import pytest
from matplotlib.figure import Figure

from kvbench.report.figures import style

SIZE = 2**15  # bytes of a file: about those of a rendered one
SAVE, FIX_LAYOUT = Figure.savefig, style._fix_layout


def write_zeros(figure: Figure, path: Path, **options) -> None:
    Path(path).write_bytes(bytes(SIZE))


# In this process, but for tests and fixtures that ask for it.
Figure.savefig = write_zeros
style._fix_layout = lambda figure: None


@contextmanager
def rendering():
    """For the run of a fixture."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Figure, "savefig", SAVE)
        patch.setattr(style, "_fix_layout", FIX_LAYOUT)
        yield


@pytest.fixture
def rendered():
    """For tests of rendered figures."""
    with rendering():
        yield
