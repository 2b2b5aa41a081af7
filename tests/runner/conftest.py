"""What the tests of runs share."""

import pytest

from tests.support.unrendered import render_nothing


@pytest.fixture(autouse=True)
def unrendered(monkeypatch):
    render_nothing(monkeypatch)
