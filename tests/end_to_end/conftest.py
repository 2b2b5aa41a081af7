"""What the tests of whole commands share."""

import pytest

from tests.support.unrendered import render_nothing


@pytest.fixture
def rendered():
    """For tests of rendered figures."""


@pytest.fixture(autouse=True)
def unrendered(request, monkeypatch):
    """All others build and save their figures alone: rendering takes longer than a tiny run makes its records."""
    if "rendered" not in request.fixturenames:
        render_nothing(monkeypatch)
