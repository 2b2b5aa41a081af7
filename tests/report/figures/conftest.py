"""What the tests of figures share."""

from pathlib import Path

import pytest

from tests.support.figure_records import BYTES, FIG5, somehow
from tests.support.made_runs import make_runs


@pytest.fixture(scope="session")
def figure5(tmp_path_factory) -> Path:
    """Records of SpindleKV's Figure 5 for all three models."""
    top = tmp_path_factory.mktemp("figure5")
    make_runs(top, FIG5, score=somehow, samples=3, **BYTES)
    return top
