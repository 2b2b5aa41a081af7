"""The page in a real browser: it sorts, filters, opens samples, takes keys, and shows hostile text as text."""

import json
from urllib.parse import urlsplit

import pytest

from kvbench.cache.kept_positions import decode
from kvbench.report.command import main
from tests.support.browser import chromium
from tests.support.report_run import LAYERS, manifest, record, told, write_run
from tests.support.waiting import wait_for

SETTINGS = ("full", "snapkv 0.2", "snapkv 0.4", "h2o 0.2")
HOSTILE = '<script>window.hit=1</script></script><!--<img src=x onerror="window.hit=1">\u2028"\'&lt;\\'
# What leaves the page or its folder; Chromium loads resources of its own under other schemes.
NETWORK = {"file", "ftp", "http", "https", "ws", "wss"}
ONLY_IN_PROMPTS = "\x00\ud83d"  # a record cannot hold a lone surrogate


def grid_run(folder):
    """Needles in 2 lengths × 3 depths, 20 of each: full finds all, snapkv 0.2 none below depth 100."""
    places = [(length, depth, i) for length in (1000, 2000) for depth in (0, 50, 100) for i in range(20)]
    rows, samples = [], []
    for length, depth, i in places:
        name = f"needle-{length}-{depth}-{i}"
        samples.append(told(name, f"a tale of {name}. What?", meta={"length": length, "depth": depth}))
        for setting in SETTINGS:
            found = {"full": 1.0, "snapkv 0.2": float(depth == 100), "snapkv 0.4": 0.5}.get(setting, float(i % 2))
            text = f"{setting} says {i}"
            rows.append(record(name, setting, found, text, length=length, depth=depth, benchmark="grid"))
    return write_run(folder / "grid", rows, samples, [manifest(settings=list(SETTINGS), benchmark={"name": "grid"})])


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
    samples = [told(name, f"{end}{HOSTILE}", question=HOSTILE, **more)]
    return write_run(folder / "hostile", rows, samples, [manifest(run=HOSTILE, status=HOSTILE)])


@pytest.fixture(scope="module")
def driver():
    with chromium() as driver:
        yield driver


@pytest.fixture(scope="module")
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

    def texts(self, css):
        return self.js("[...document.querySelectorAll(arguments[0])].map((e) => e.textContent)", css)

    def column(self, section, number):
        return self.texts(f"#{section} tbody tr > :nth-child({number})")

    def click(self, css):
        self.js("document.querySelector(arguments[0]).click()", css)

    def choose(self, css, value):
        self.js(
            "((e) => { e.value = arguments[1]; e.dispatchEvent(new Event('change')); })"
            "(document.querySelector(arguments[0]))",
            css,
            value,
        )

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


def test_a_page_opens_from_a_file_and_tells_what_it_is_of(page):
    caption = page.one("#caption").text
    assert caption == (
        "grid · tiny (float32) · question visible when compressing · 120 samples · 4 settings · 480 records"
    )
    assert page.texts("h2") == ["Settings", "Score against bytes", "Needle heatmaps", "Samples", "Provenance"]
    assert "0.1.0 0123456789" in page.column("provenance", 5)
    assert json.loads(page.texts("#provenance details pre")[0])["packages"]["torch"] == "2.13.0"
    assert page.driver.title == "kvbench: grid, hostile"


def test_settings_are_sorted_by_a_click_and_back_by_another(page):
    assert page.column("settings", 1) == list(SETTINGS)
    score = "#settings th:nth-child(5)"
    page.click(f"{score} button")
    assert page.column("settings", 5) == ["1.000", "0.500", "0.500", "0.333"]
    assert page.one(score).get_attribute("aria-sort") == "descending"
    page.click(f"{score} button")
    assert page.column("settings", 5) == ["0.333", "0.500", "0.500", "1.000"]
    assert page.one(score).get_attribute("aria-sort") == "ascending"
    page.click("#settings th:nth-child(2) button")  # requested: full requests nothing, which comes last both ways
    assert page.column("settings", 1)[-1] == "full"
    page.click("#settings th:nth-child(2) button")
    assert page.column("settings", 1)[-1] == "full"


def test_settings_are_filtered_by_words_and_methods_everywhere(page):
    page.type("#settings input[type=search]", "snap 0.400")
    assert page.until(lambda: page.column("settings", 1) == ["snapkv 0.4"])
    assert "1 row (of 4)" in page.texts("#settings .count")
    page.click(".methods label:nth-of-type(2) input")
    assert page.column("settings", 1) == ["full", "h2o 0.2"]
    page.until(lambda: len(page.all("#heatmaps table")) == len(page.all("#plot .point")) == 2)


def test_the_plot_has_a_mark_per_setting_and_tells_which(page):
    marks = page.all("#plot .point")
    told = {mark.get_attribute("aria-label") for mark in marks}
    assert len(marks) == 4 and any(t.startswith("snapkv 0.2: r_bytes 0.210, score 0.333 (95 % interval") for t in told)
    place = "#plot .point .mark"
    before = {e.get_attribute("transform") for e in page.all(place)}
    page.click("#plot input[value=r]")
    after = {e.get_attribute("transform") for e in page.all(place)}
    assert before != after
    assert any("h2o 0.2: r 0.200" in e.get_attribute("aria-label") for e in page.all("#plot .point"))
    page.js("document.querySelector('#plot .point').focus()")
    assert page.one("#plot .tip").text == page.all("#plot .point")[0].get_attribute("aria-label")
    assert page.js("getComputedStyle(document.querySelector('#plot .point .named')).visibility") == "visible"


def test_heatmaps_have_a_number_in_every_cell_and_open_its_samples(page):
    assert [t.split("mean")[0] for t in page.texts("#heatmaps caption")] == list(SETTINGS)
    panel = "#heatmaps .panels > :nth-child(2)"
    assert page.texts(f"{panel} thead th") == ["1000", "2000"]
    rows = [page.texts(f"{panel} tbody tr:nth-child({i}) > *") for i in (1, 2, 3)]
    assert rows == [["0", "0", "0"], ["50", "0", "0"], ["100", "100", "100"]]
    colours = page.js(
        "[...document.querySelectorAll(arguments[0])].map((e) => getComputedStyle(e).backgroundColor)",
        f"{panel} td.heat",
    )
    assert len(set(colours)) == 2 and colours[0] == colours[3] != colours[4]
    page.click(f"{panel} tbody tr:nth-child(2) td:nth-of-type(2)")
    assert len(page.column("samples", 1)) == 20
    assert all(name.startswith("needle-2000-50-") for name in page.column("samples", 1))
    assert page.column("samples", 6)[0] == "snapkv 0.2 says 0"  # the setting whose heatmap it was


def test_samples_are_paged_sorted_and_filtered(page):
    assert len(page.column("samples", 1)) == 50
    count = "#samples .count"
    assert page.texts(count) == ["1 – 50 of 120 rows"]
    for _ in range(2):
        page.click("#samples .pager button:last-child")
    assert page.texts(count) == ["101 – 120 of 120 rows"] and len(page.column("samples", 1)) == 20
    page.click("#samples th:nth-child(1) button")
    assert page.column("samples", 1)[:3] == [f"needle-1000-0-{i}" for i in range(3)]  # natural order, from the start
    page.type("#search", "WHAT h2o 17")
    assert page.until(lambda: len(page.column("samples", 1)) == 6)
    assert all(name.endswith("-17") for name in page.column("samples", 1))


def test_only_wrong_samples_of_one_setting(page):
    selects = "#samples .row label:nth-of-type({}) select"
    page.choose(selects.format(2), "snapkv 0.2")
    assert page.texts("#samples th:last-child")[0] == "output"
    page.choose(selects.format(3), "wrong")
    assert page.texts("#samples .count") == ["1 – 50 of 80 rows"]
    assert all("✗ 0.00" in text for text in page.column("samples", 5))
    page.choose(selects.format(2), "full")
    assert page.column("samples", 1) == ["no sample passes the filters"]
    page.choose(selects.format(2), "")
    page.choose(selects.format(3), "differ")
    assert page.texts("#samples .count") == ["1 – 50 of 120 rows"]


def test_a_sample_opens_with_everything_side_by_side(page):
    page.click("#samples tbody tr:nth-child(3) button.open")
    assert page.one("#sample-title").text == "needle-1000-0-2"
    assert page.one(".prompt").text == "… a tale of needle-1000-0-2. What?"
    assert page.one(".prompt mark").text == "What?"
    assert page.texts(".answers li") == ["an answer"]
    assert page.texts(".card .output") == [f"{setting} says 2" for setting in SETTINGS]
    assert [t.split()[-1] for t in page.texts(".card .score")] == ["1.00", "0.00", "0.50", "0.00"]
    assert page.texts(".bars figcaption")[1].replace("\u00a0", " ") == "kept: 20 % in every layer"
    assert page.js("document.querySelectorAll('.card:nth-child(2) .bars rect').length") == LAYERS


def test_a_strip_shows_exactly_the_positions_of_the_record(page):
    page.click("#samples button.open")
    strips = page.js(
        "[...document.querySelectorAll('.strip canvas')].map((c) => [c.width, c.height,"
        " [...c.getContext('2d').getImageData(0, 0, c.width, c.height).data].filter((_, i) => i % 4 === 3)])"
    )
    for (width, height, alpha), setting in zip(strips, SETTINGS, strict=True):
        expected = [decode(text) for text in record("needle-1000-0-0", setting, 1.0)["kept_positions"]]
        assert (width, height) == (64, LAYERS)
        shown = [[a / 255 for a in alpha[layer * 64 : (layer + 1) * 64]] for layer in range(LAYERS)]
        assert shown == expected  # all or nothing in these records
    assert page.one(".needle").get_attribute("style") == "left: 0%;"


def test_the_keyboard_is_enough(page):
    k = keys()
    page.js("document.querySelector('#settings th:nth-child(5) button').focus()")
    page.key(k.ENTER)
    assert page.one("#settings th:nth-child(5)").get_attribute("aria-sort") == "descending"
    page.key(k.TAB, k.SPACE)
    assert page.one("#settings th:nth-child(6)").get_attribute("aria-sort") == "descending"
    page.js("document.querySelector('#samples tbody tr:nth-child(2) button').focus()")
    page.key(k.ENTER)
    assert page.one("#sample-title").text == "needle-1000-0-1"
    page.key(k.ARROW_RIGHT)
    assert page.one("#sample-title").text == "needle-1000-0-2"
    page.key(k.ARROW_LEFT, k.ARROW_LEFT, k.ARROW_LEFT)  # there is none before the first
    assert page.one("#sample-title").text == "needle-1000-0-0"
    page.key(k.ESCAPE)
    assert not page.one("dialog").get_property("open")
    assert page.js("document.activeElement.textContent") == "needle-1000-0-1"  # where it was opened from


def test_another_run_and_another_score_are_chosen_at_the_top(page):
    page.choose("#controls label:nth-of-type(2) select", "exact")
    page.until(lambda: page.all("#plot [aria-label^='full: r_bytes 1.000, exact 1.000']"))
    assert page.column("heatmaps", 2)[:3] == ["100"] * 3 and page.column("heatmaps", 2)[6:9] == ["0"] * 3
    page.choose("#controls label:nth-of-type(1) select", "1")
    assert "made_up" in page.one("#caption").text and not page.all("#heatmaps")


def test_text_of_models_data_and_users_stays_text(page):
    page.choose("#controls label:nth-of-type(1) select", "1")
    assert page.column("tasks", 1) == [f"{HOSTILE}0", f"{HOSTILE}1", "mean"]
    assert page.column("provenance", 1) == [HOSTILE]
    assert page.column("settings", 1) == ["full", HOSTILE]
    page.until(lambda: any(HOSTILE in text for text in page.texts("#plot .named")))
    page.type("#search", 'onerror="window')
    page.until(lambda: page.texts("#samples .count") == ["2 rows"])
    page.choose("#samples .row label:nth-of-type(2) select", f"{HOSTILE}0")
    assert page.column("samples", 1) == [f"{HOSTILE} id"]
    page.click("#samples button.open")
    assert page.one("#sample-title").get_property("textContent") == f"{HOSTILE} id"
    assert page.texts(".answers pre") == [f"{HOSTILE} answer"]
    assert page.texts("dialog q") == [HOSTILE]
    codes = "Array.from({length: arguments[0].length}, (_, i) => arguments[0].charCodeAt(i))"
    prompt = page.js(f"((...arguments) => {codes})(document.querySelector('.prompt').textContent)")
    assert prompt == [ord(c) for c in f"… {HOSTILE}{ONLY_IN_PROMPTS} end{HOSTILE}"]
    output = page.js(f"((...arguments) => {codes})(document.querySelector('.output').textContent)")
    assert output == [ord(c) for c in f"{HOSTILE}\x00 output"]
    assert page.js("window.hit === undefined && !document.querySelector('img')")
    assert len(page.all("script")) == len(page.all("body > script"))


def test_dark_and_light_follow_the_system_or_the_choice(page):
    def paper():
        return page.js("getComputedStyle(document.body).backgroundColor")

    def strip():
        return page.js("getComputedStyle(document.querySelector('canvas')).filter")

    page.click("#samples button.open")
    system = {}
    for scheme in ("dark", "light"):
        features = [{"name": "prefers-color-scheme", "value": scheme}]
        page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"features": features})
        system[scheme] = paper(), strip()
    assert system["dark"] == ("rgb(20, 23, 26)", "invert(1)") and system["light"] == ("rgb(255, 255, 255)", "none")
    for scheme in ("dark", "light"):
        page.choose("#controls label:nth-of-type(3) select", scheme)
        assert (paper(), strip()) == system[scheme]
    features = [{"name": "prefers-color-scheme", "value": "dark"}]
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "print", "features": features})
    page.choose("#controls label:nth-of-type(3) select", "dark")
    assert (paper(), strip()) == system["light"]
    page.driver.execute_cdp_cmd("Emulation.setEmulatedMedia", {"media": "", "features": []})


@pytest.mark.parametrize("width", [360, 1600])
def test_nothing_sticks_out_at_any_width(page, width):
    size = {"width": width, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    for run in ("1", "0"):
        page.choose("#controls label:nth-of-type(1) select", run)
        page.until(lambda: page.js("document.querySelector('.plot svg')?.clientWidth <= innerWidth"))
        assert page.js("document.documentElement.scrollWidth <= innerWidth")
    page.click("#samples button.open")
    assert page.js("document.querySelector('dialog').scrollWidth <= document.querySelector('dialog').clientWidth")
    page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
