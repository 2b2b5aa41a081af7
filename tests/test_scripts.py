"""Names of scripts: Python puts a script's folder in front of all others, so a module of its name is not found."""

import sys
from importlib.metadata import packages_distributions

import pytest

from tests.support.paths import ROOT

SCRIPTS = sorted(file.stem for file in (ROOT / "scripts").rglob("*.py"))
# Packages that look for a module which need not be installed (Numba for coverage).
OPTIONAL = {"coverage"}


@pytest.mark.parametrize("name", SCRIPTS)
def test_no_script_hides_a_module(name):
    assert name not in {*sys.stdlib_module_names, *packages_distributions(), *OPTIONAL} - {"__init__"}
