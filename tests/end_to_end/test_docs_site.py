"""`make docs` on a copy of the documentation: a link that leads nowhere fails it; the search works from the disk."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.browser import chromium
from tests.support.needs import needs
from tests.support.paths import ROOT
from tests.support.waiting import wait_for

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


# What users of other projects type.
WORDS = (
    "ablation|api key|attention sink|baseline|batch size|chat template|checkpoint|cite|compression ratio|"
    "confidence interval|custom method|error bars|eviction|export|GPU memory|GQA|int4|interrupted|latency|license|"
    "macOS|multi-GPU|notebook|offline|OOM|out of memory|p-value|perplexity|prefix caching|quantization|reproducibility|"
    "resume|seed|significance|speedup|throughput|tokens per second|Windows"
).split("|")


@pytest.mark.heavy
def test_the_words_of_users_find_a_page_on_a_site_that_is_opened_from_the_disk(copy):
    built = make_docs(copy)
    assert built.returncode == 0, built.stderr
    methods, models = ((copy / "build" / "site" / f"{page}.html").read_text("utf-8") for page in ("methods", "models"))
    assert "Proxies are the last" in methods and "conf/scoring/nacl.yaml" in methods  # of NACL's class and file
    assert "<code>qwen3-8b</code>" in models  # of conf/model
    with chromium() as driver:
        driver.get((copy / "build" / "site" / "index.html").as_uri())
        field = driver.find_element("css selector", "input.md-search__input")
        field.click()
        found = dict.fromkeys(WORDS, "")

        def told() -> str:
            return driver.find_element("css selector", ".md-search-result__meta").get_attribute("textContent").strip()

        for words in WORDS:
            field.clear()
            wait_for(lambda: told() in ("Type to start searching", ""), pause=0.05)
            # all at once but for the last letter: letter by letter, an answer to the first ones would be read
            driver.execute_script("arguments[0].value = arguments[1]", field, words[:-1])
            field.send_keys(words[-1])
            wait_for(lambda: re.search(r"\d+ matching|No matching", told()), pause=0.05)
            found[words] = told()
    assert [words for words, said in found.items() if said.startswith("No matching")] == []
