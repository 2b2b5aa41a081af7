"""What the tests of engines share."""

import pytest

from kvbench.engines import http
from tests.support.unrendered import render_nothing


@pytest.fixture(autouse=True)
def unrendered(monkeypatch):
    render_nothing(monkeypatch)


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch):
    """Pauses between attempts are as long as a test needs: not at all."""
    monkeypatch.setattr(http, "FIRST", 0.0)
