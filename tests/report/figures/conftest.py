"""What the tests of figures share."""

from pathlib import Path

import pytest

from tests.support.figure_records import BYTES, FIG5, somehow
from tests.support.made_runs import make_runs
from tests.support.unrendered import render_nothing


@pytest.fixture
def unrendered(monkeypatch):
    """For tests of what is drawn and where it is written."""
    render_nothing(monkeypatch)


@pytest.fixture(scope="session")
def figure5(tmp_path_factory) -> Path:
    """Records of SpindleKV's Figure 5 for all three models."""
    top = tmp_path_factory.mktemp("figure5")
    make_runs(top, FIG5, score=somehow, samples=3, **BYTES)
    return top
