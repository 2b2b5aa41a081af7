"""Headless Chromium for tests; where there is none, they are skipped and say why."""

import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager

from tests.support.needs import need
from tests.support.waiting import HANG

FLAGS = (
    "--headless --no-sandbox --disable-gpu --disable-quic --no-first-run --disable-background-networking "
    "--disable-component-update --disable-sync --window-size=1280,900"
).split()


@contextmanager
def chromium() -> Iterator:
    """A driver with an empty profile of its own; gone at the end, profile and all."""
    from selenium import webdriver
    from selenium.common.exceptions import WebDriverException
    from selenium.webdriver.chrome.service import Service

    paths = [shutil.which(name) for name in ("chromium", "chromedriver")]
    need("browser", "" if all(paths) else "apt-get install chromium chromium-driver")
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        options = webdriver.ChromeOptions()
        options.binary_location = paths[0]
        for flag in (*FLAGS, f"--user-data-dir={profile}"):
            options.add_argument(flag)
        options.set_capability("goog:loggingPrefs", {"browser": "ALL", "performance": "ALL"})
        try:
            driver = webdriver.Chrome(options=options, service=Service(paths[1]))
        except WebDriverException:  # it crashes now and then as it starts (a trap of its own): once more
            driver = webdriver.Chrome(options=options, service=Service(paths[1]))
        try:
            driver.set_script_timeout(HANG)  # a script may wait for a frame
            # elements take the focus also where the window has none
            driver.execute_cdp_cmd("Emulation.setFocusEmulationEnabled", {"enabled": True})
            yield driver
        finally:
            driver.quit()
