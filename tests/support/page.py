"""Pages of made-up runs, and what a reader of one sees and does."""

import json
import math
import re

from kvbench.metrics.frontier import Point, frontier
from kvbench.report.page.command import main
from kvbench.report.tables.frontier_table import frontier_table, recommendation, write_frontier
from tests.support.report_run import manifest, record, sample_row, write_run
from tests.support.waiting import wait_for

SETTINGS = ("full", "snapkv 0.2", "snapkv 0.4", "h2o 0.2")


HOSTILE = '<script>window.hit=1</script></script><!--<img src=x onerror="window.hit=1">\u2028"\'&lt;\\'


# What leaves the page or its folder; Chromium loads resources of its own under other schemes.
NETWORK = {"file", "ftp", "http", "https", "ws", "wss"}


ONLY_IN_PROMPTS = "\x00\ud83d"  # a record cannot hold a lone surrogate


def tale(sample):
    """The end of a prompt."""
    return f"a tale of {sample}. What?"


def grid_run(folder):
    """Needles in 2 lengths × 3 depths, 20 of each: full finds all, snapkv 0.2 none below depth 100."""
    places = [(length, depth, i) for length in (1000, 2000) for depth in (0, 50, 100) for i in range(20)]
    rows, samples = [], []
    for length, depth, i in places:
        name = f"needle-{length}-{depth}-{i}"
        samples.append(sample_row(name, tale(name), meta={"length": length, "depth": depth}))
        for setting in SETTINGS:
            found = {"full": 1.0, "snapkv 0.2": float(depth == 100), "snapkv 0.4": 0.5}.get(setting, float(i % 2))
            text = f"{setting} says {i}"
            rows.append(record(name, setting, found, text, length=length, depth=depth, benchmark="grid"))
    made = write_run(folder / "grid", rows, samples, [manifest(settings=list(SETTINGS), benchmark={"name": "grid"})])
    frontier_files(made)
    return made


def hidden_run(folder):
    """The first samples of `grid_run` with a hidden question: snapkv finds less, by 0.5 in every other sample.
    Its records say the bytes in 16 bits."""
    rows = []
    for i in range(20):
        name = f"needle-1000-100-{i}"
        for setting, found in {"full": 1.0, "snapkv 0.2": 1.0 - 0.5 * (i % 2), "knorm 0.2": 0.0}.items():
            where = {
                "length": 1000,
                "depth": 100,
                "benchmark": "grid",
                "question": "hidden",
                "answers": [f"{HOSTILE}4711"],
            }
            row = record(name, setting, found, f"{setting} hides {i}", **where)
            rows.append(row | {"r_bytes_16": row["r_bytes"]})
    needle = f"The number is {HOSTILE}4711."
    samples = [
        sample_row(
            row["sample"], tale(row["sample"]), answers=[f"{HOSTILE}4711"], evidence=[{"at": 2500, "text": needle}]
        )
        for row in rows[::3]
    ]
    return write_run(folder / "hidden", rows, samples, [manifest(settings=["full", "snapkv 0.2", "knorm 0.2"])])


def frontier_files(folder):
    """What `kvbench frontier` would have left: snapkv holds at 0.4; h2o has no interval."""
    scores = {"snapkv": {0.4: (-0.01, -0.02, 0.0), 0.2: (-0.5, -0.6, -0.4)}, "h2o": {0.2: (-0.3, math.nan, math.nan)}}
    found = {
        name: frontier([Point(f"{name} {ratio}", ratio, ratio, *bounds) for ratio, bounds in tried.items()], 0.05)
        for name, tried in scores.items()
    }
    table = frontier_table(found, 0.9, "grid · tiny")
    write_frontier(found, 0.9, table, recommendation(found, 0.9, 0.95, "score", "120 samples"), folder)


def hostile_run(folder):
    """Every text that comes from models, data or the user is an attack."""
    name = f"{HOSTILE} id"
    rows = [
        record(sample, setting, 0.5, f"{HOSTILE}\x00 output", task=HOSTILE + str(i), answers=[f"{HOSTILE} answer"])
        for i, sample in enumerate((name, "other"))
        for setting in ("full", f"{HOSTILE}")
    ]
    end = f"{HOSTILE}{ONLY_IN_PROMPTS} end"
    more = {"prefix": HOSTILE, "answers": [f"{HOSTILE} answer"], "meta": {"task": ""}}
    samples = [sample_row(name, f"{end}{HOSTILE}", question=HOSTILE, **more)]
    return write_run(folder / "hostile", rows, samples, [manifest(run=HOSTILE, status=HOSTILE)])


BLOCK = re.compile(r'<script type="application/json" id="([^"]+)">(.*?)</script>', re.S)


def blocks(html: str) -> dict[str, object]:
    """The data of a page by the name of its element."""
    return {name: json.loads(text) for name, text in BLOCK.findall(html)}


def opened_page(driver, folders, shown):
    """The page of these runs in the browser, once it shows what the selector names."""
    path = folders[-1] / "page.html"
    main([*map(str, folders), "--out", str(path)])
    driver.get(path.as_uri())
    page = Page(driver)
    page.until(lambda: page.all(shown))
    page.frame()
    return page


class Page:
    """What a reader sees and does, in few words."""

    def __init__(self, driver):
        self.driver = driver

    def all(self, css):
        return self.driver.find_elements("css selector", css)

    def one(self, css):
        return self.driver.find_element("css selector", css)

    def js(self, script, *arguments):
        return self.driver.execute_script(f"return {script}", *arguments)

    def complaints(self):
        """What the browser has complained about since it was last asked."""
        return [entry["message"] for entry in self.driver.get_log("browser")]

    def texts(self, css):
        return self.js("[...document.querySelectorAll(arguments[0])].map((e) => e.textContent)", css)

    def column(self, section, number):
        return self.texts(f"#{section} tbody tr > :nth-child({number})")

    def click(self, css):
        self.js("document.querySelector(arguments[0]).click()", css)
        self.frame()

    def choose(self, css, value):
        self.js(
            "((e) => { e.value = arguments[1]; e.dispatchEvent(new Event('change')); })"
            "(document.querySelector(arguments[0]))",
            css,
            value,
        )
        self.frame()

    def frame(self):
        """Wait until the browser has shown a frame: what follows the width of an element is drawn in it."""
        self.driver.execute_async_script("requestAnimationFrame(() => requestAnimationFrame(arguments[0]))")

    def until(self, what):
        """The first true value of `what`: the page follows typing a moment later."""
        return wait_for(what, pause=0.02)

    def type(self, css, text):
        self.one(css).send_keys(text)

    def key(self, *keys):
        from selenium.webdriver.common.action_chains import ActionChains

        ActionChains(self.driver).send_keys(*keys).perform()


def keys():
    from selenium.webdriver.common.keys import Keys

    return Keys
