"""`make docs` on a copy of the documentation: a link that leads nowhere fails it."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.needs import needs
from tests.support.paths import ROOT

SITE = ROOT / ".venv-docs"  # `make docs` makes it
pytestmark = needs("docs", "" if (SITE / "installed").is_file() else f"{SITE.name} is made by `make docs`")


@pytest.fixture
def copy(tmp_path) -> Path:
    """The checkout, with pages of its own; all else are links to the files here."""
    for path in ROOT.iterdir():
        if path.name not in {"docs", "build", ".git"}:
            (tmp_path / path.name).symlink_to(path)
    shutil.copytree(ROOT / "docs", tmp_path / "docs")
    return tmp_path


def make_docs(folder: Path) -> subprocess.CompletedProcess:
    """Run `make docs`, but for the installation of what builds the site."""
    command = ["make", "--assume-old=.venv-docs/installed", "docs"]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


def test_a_broken_link_fails_the_build_and_is_its_only_warning(copy):
    page = copy / "docs" / "install.md"
    page.write_text(page.read_text(encoding="utf-8") + "\n[a page that nobody wrote](nowhere.md)\n", encoding="utf-8")
    built = make_docs(copy)
    assert built.returncode != 0
    (warning,) = (line for line in built.stderr.splitlines() if line.startswith("WARNING"))
    assert "Doc file 'install.md' contains a link 'nowhere.md'" in warning
