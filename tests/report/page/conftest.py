"""A browser with a page of two made-up runs."""

import json
from urllib.parse import urlsplit

import pytest

from kvbench.report.page.command import main
from tests.support.browser import chromium
from tests.support.page import NETWORK, Page, grid_run, hostile_run


@pytest.fixture(scope="session")
def driver():
    with chromium() as driver:
        yield driver


@pytest.fixture(scope="session")
def path(tmp_path_factory):
    folder = tmp_path_factory.mktemp("page")
    out = folder / "page.html"
    main([str(grid_run(folder)), str(hostile_run(folder)), "--out", str(out)])
    return out


@pytest.fixture
def page(driver, path):
    """The page as just opened; afterwards nothing may have been complained of or fetched."""
    driver.get_log("performance")
    driver.get(path.as_uri())
    opened = Page(driver)
    opened.until(lambda: opened.all("#plot .point"))
    yield opened
    complaints = [entry["message"] for entry in driver.get_log("browser")]
    assert not complaints
    requests = [json.loads(entry["message"])["message"] for entry in driver.get_log("performance")]
    urls = {r["params"]["request"]["url"] for r in requests if r["method"] == "Network.requestWillBeSent"}
    assert {url for url in urls if urlsplit(url).scheme in NETWORK} == {path.as_uri()}
