"""What the tests of tables share."""

from pathlib import Path

import pytest

from tests.support.made_runs import SMALL, known, make_runs


@pytest.fixture(scope="session")
def small(tmp_path_factory) -> Path:
    """A run of `SMALL` with known scores."""
    top = tmp_path_factory.mktemp("small")
    make_runs(top, SMALL, score=known, samples=3)
    return top
