"""The documentation names what is there, and points at nothing that is not."""

import re
from pathlib import Path

import pytest

from kvbench.cli import CONF

ROOT = Path(__file__).parents[1]
PAGES = [ROOT / "README.md", ROOT / "CHANGELOG.md", ROOT / "scripts" / "README.md", *(ROOT / "docs").glob("*.md")]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
        if not target.startswith(("http://", "https://", "#")):
            assert (page.parent / target.partition("#")[0]).exists(), target


def test_every_method_and_benchmark_is_told_of():
    methods = (ROOT / "docs" / "methods.md").read_text(encoding="utf-8")
    benchmarks = (ROOT / "docs" / "benchmarks.md").read_text(encoding="utf-8")
    missing = [path.stem for path in (CONF / "method").glob("*.yaml") if f"`{path.stem}`" not in methods]
    missing += [path.stem for path in (CONF / "benchmark").glob("*.yaml") if path.stem not in benchmarks]
    assert not missing


def test_every_model_is_told_of():
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    assert [path.stem for path in (CONF / "model").glob("*.yaml") if f"`{path.stem}`" not in text] == []


def test_the_method_of_the_readme_is_the_one_that_is_tested():
    code = (ROOT / "tests" / "my_method.py").read_text(encoding="utf-8")
    assert code.strip() in (ROOT / "README.md").read_text(encoding="utf-8")
