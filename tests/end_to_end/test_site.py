"""`make docs` builds the documentation's site, and fails where a page is wrong."""

import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.paths import ROOT

ENVIRONMENT = ROOT / ".venv-docs"
COPIED = ["docs", "results", "kvbench", "scripts/README.md", "mkdocs.yml", "requirements-docs.txt", "Makefile"]
COPIED += ["CHANGELOG.md", "CONTRIBUTING.md", "README.md"]

pytestmark = pytest.mark.skipif(
    not (ENVIRONMENT / "installed").exists(), reason="the documentation's environment is missing: make docs"
)


@pytest.fixture
def checkout(tmp_path) -> Path:
    """A copy of what the site is made of, with the times of the files."""
    for name in COPIED:
        source, target = ROOT / name, tmp_path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        if source.is_dir():
            shutil.copytree(source, target, ignore=shutil.ignore_patterns("__pycache__"))
        else:
            shutil.copy2(source, target)
    return tmp_path


def build(folder: Path) -> subprocess.CompletedProcess:
    command = ["make", "docs", f"DOCS={ENVIRONMENT}", f"PYTHON={sys.executable}"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_the_site_is_built(checkout):
    done = build(checkout)
    assert done.returncode == 0, done.stderr
    assert (checkout / "build/site/repository/results/leaderboard/index.html").is_file()


@pytest.mark.parametrize(
    ("page", "line", "said"),
    [
        ("docs/models.md", "[nothing](no-such-page.md)", "no-such-page.md"),
        ("docs/models.md", "[no place](methods.md#no-such-heading)", "no-such-heading"),
        ("results/smollm2/README.md", "[nothing](no-such-table.md)", "no-such-table.md"),
    ],
)
def test_a_link_that_leads_nowhere_fails_the_build(checkout, page, line, said):
    with (checkout / page).open("a", encoding="utf-8") as file:
        file.write(f"\n{line}\n")
    done = build(checkout)
    assert done.returncode != 0 and said in done.stderr + done.stdout


def test_a_page_that_the_navigation_leaves_out_fails_the_build(checkout):
    (checkout / "docs/orphan.md").write_text("# A page without a place\n", encoding="utf-8")
    done = build(checkout)
    assert done.returncode != 0 and "orphan.md" in done.stderr + done.stdout
