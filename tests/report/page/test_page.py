"""The page in a real browser: tables, plots, themes, widths, and hostile text shown as text."""

import json
import re

import pytest

from kvbench.configuration.conf import titled
from kvbench.metrics.frontier import pareto
from tests.support.page import HOSTILE, ONLY_IN_PROMPTS, SETTINGS

pytestmark = pytest.mark.heavy


def test_a_page_opens_from_a_file_and_tells_what_it_is_of(page):
    caption = page.one("#caption").text
    assert caption == (
        "grid · tiny (float32) · question visible when compressing · r_bytes in 16 bits, but of 3 settings in the "
        "run's own dtype: codes look smaller beside 32-bit numbers · 120 samples · 4 settings · 480 records"
    )
    assert page.one("h1").text == "grid on tiny"
    assert page.texts("h2") == [
        "Score against bytes",
        "Bytes at equal quality",
        "Differences",
        "Settings",
        "Needle heatmaps",
        "Samples",
        "Provenance",
    ]
    assert "0.1.0 efefefefef" in page.column("provenance", 5)
    assert json.loads(page.texts("#provenance details pre")[0])["packages"]["torch"] == "2.13.0"
    assert page.driver.title == "kvbench: grid, hostile"


def test_ratios_of_decoding_are_folded_and_the_address_keeps_them_open(page):
    assert page.texts("#settings thead th")[:4] == ["setting", "requested", "r", "r_bytes"]
    assert not {"r_mean", "r_peak", "r_read"} & {*page.texts("#settings thead th")}
    page.click("#settings input[type=checkbox]")
    page.until(lambda: {"r_mean", "r_peak", "r_read"} <= {*page.texts("#settings thead th")})
    assert "ratios=all" in page.js("location.hash")
    page.js("history.back()")
    page.until(lambda: "r_mean" not in page.texts("#settings thead th"))


def test_no_two_landmarks_have_one_name(page):
    names = page.js(
        "[...document.querySelectorAll('section, nav, [role=region]')].map((e) => e.getAttribute('aria-label') ?? "
        "document.getElementById(e.getAttribute('aria-labelledby')).textContent)"
    )
    assert len(names) > 8 and len({*names}) == len(names)


def test_marks_at_one_place_stand_side_by_side(page):
    moved = page.js("[...besideEachOther([{x: 0.2}, {x: 0.2}, {x: 0.9}], (x) => 500 * x).values()]")
    assert moved == [-3.5, 3.5, 0]
    many = page.js("[...besideEachOther(Array.from({length: 28}, () => ({x: 1})), (x) => x).values()]")
    assert max(many) - min(many) < 56


def test_settings_are_sorted_by_a_click_and_back_by_another(page):
    assert page.column("settings", 1) == list(map(titled, SETTINGS))
    place = page.texts("#settings th").index("score") + 1
    score = f"#settings th:nth-child({place})"
    page.click(f"{score} button")
    assert page.column("settings", place) == ["1.000", "0.500", "0.500", "0.333"]
    assert page.one(score).get_attribute("aria-sort") == "descending"
    page.click(f"{score} button")
    assert page.column("settings", place) == ["0.333", "0.500", "0.500", "1.000"]
    assert page.one(score).get_attribute("aria-sort") == "ascending"
    page.click("#settings th:nth-child(2) button")  # requested: full requests nothing, which comes last both ways
    assert page.column("settings", 1)[-1] == "FullKV"
    page.click("#settings th:nth-child(2) button")
    assert page.column("settings", 1)[-1] == "FullKV"


def test_settings_are_filtered_by_words_and_methods_everywhere(page):
    page.type("#settings input[type=search]", "snap 0.400")
    assert page.until(lambda: page.column("settings", 1) == ["SnapKV 0.4"])
    assert "1 row (of 4)" in page.texts("#settings .count")
    page.click(".methods label:nth-of-type(2) input")
    assert page.column("settings", 1) == ["FullKV", "H2O 0.2"]
    page.until(lambda: len(page.all("#heatmaps table")) == len(page.all("#plot .point")) == 2)


def test_the_plot_has_a_mark_per_setting_and_tells_which(page):
    marks = page.all("#plot .point")
    told = {mark.get_attribute("aria-label") for mark in marks}
    assert len(marks) == 4 and any(t.startswith("SnapKV 0.2: r_bytes 0.210, score 0.333 (95 % interval") for t in told)
    place = "#plot .point .mark"
    before = {e.get_attribute("transform") for e in page.all(place)}
    page.click("#plot input[value=r]")
    after = {e.get_attribute("transform") for e in page.all(place)}
    assert before != after
    assert any("H2O 0.2: r 0.200" in e.get_attribute("aria-label") for e in page.all("#plot .point"))
    page.js("document.querySelector('#plot .point').focus()")
    assert page.one("#plot .tip").text == page.all("#plot .point")[0].get_attribute("aria-label")
    assert page.js("getComputedStyle(document.querySelector('#plot .point .named')).visibility") == "visible"


def test_tables_are_saved_as_csv_with_the_rows_that_pass_the_filter(page):
    made = page.js("csv([{title: 'a, b', value: (row) => row}, {title: 'c', value: () => null}], ['x\"y', 1.25, -0])")
    assert made == '"a, b",c\r\n"x""y",\r\n1.25,\r\n0,\r\n'
    page.js("HTMLAnchorElement.prototype.click = function () { window.saved = [this.download, this.href]; }")
    page.type("#settings input[type=search]", "snap 0.400")
    assert page.until(lambda: page.column("settings", 1) == ["SnapKV 0.4"])
    page.js("URL.createObjectURL = (blob) => { window.blob = blob; return 'blob:made'; }")
    page.click("#settings .save")
    assert page.js("window.saved") == ["settings.csv", "blob:made"]
    text = page.driver.execute_async_script("window.blob.text().then(arguments[0])")
    header, row = text.strip().split("\r\n")
    assert header.startswith("setting,requested,") and row.startswith("SnapKV 0.4,0.4,")


def test_the_plot_marks_the_pareto_front(page):
    told = [mark.get_attribute("aria-label") for mark in page.all("#plot .point")]
    found = [re.match(r".*?: r_bytes ([\d.]+), score ([\d.]+)", text) for text in told]
    points = [tuple(map(float, match.groups())) for match in found]
    front = {told[i] for i in pareto(points)}
    assert 1 < len(front) < len(told)
    assert {text for text in told if text.endswith(", on the Pareto front")} == front
    assert len(page.all("#plot .point .front")) == len(front)


def test_heatmaps_have_a_number_in_every_cell_and_open_its_samples(page):
    assert [t.split("mean")[0] for t in page.texts("#heatmaps caption")] == list(map(titled, SETTINGS))
    panel = "#heatmaps .panels > :nth-child(2)"
    assert page.texts(f"{panel} thead th") == ["1000", "2000"]
    rows = [page.texts(f"{panel} tbody tr:nth-child({i}) > *") for i in (1, 2, 3)]
    assert rows == [["0", "0.00", "0.00"], ["50", "0.00", "0.00"], ["100", "1.00", "1.00"]]
    colours = page.js(
        "[...document.querySelectorAll(arguments[0])].map((e) => getComputedStyle(e).backgroundColor)",
        f"{panel} td.heat",
    )
    assert len(set(colours)) == 2 and colours[0] == colours[3] != colours[4]
    page.click(f"{panel} tbody tr:nth-child(2) td:nth-of-type(2)")
    assert len(page.column("samples", 1)) == 20
    assert all(name.startswith("needle-2000-50-") for name in page.column("samples", 1))
    assert page.column("samples", 6)[0] == "snapkv 0.2 says 0"  # the setting whose heatmap it was


def test_another_run_and_another_score_are_chosen_at_the_top(page):
    page.choose("#controls label:nth-of-type(2) select", "exact")
    page.until(lambda: page.all("#plot [aria-label^='FullKV: r_bytes 1.000, exact 1.000']"))
    assert page.column("heatmaps", 2)[:3] == ["1.00"] * 3 and page.column("heatmaps", 2)[6:9] == ["0.00"] * 3
    page.choose("#controls label:nth-of-type(1) select", "1")
    assert "made_up" in page.one("#caption").text and not page.all("#heatmaps")


def test_text_of_models_data_and_users_stays_text(page):
    page.choose("#controls label:nth-of-type(1) select", "1")
    assert page.texts("#tasks thead th") == ["setting", "mean", f"{HOSTILE}0", f"{HOSTILE}1"]
    assert page.column("provenance", 1) == [HOSTILE]
    assert page.column("settings", 1) == ["FullKV", HOSTILE]
    page.until(lambda: any(HOSTILE in text for text in page.texts("#plot .named")))
    page.type("#search", 'onerror="window')
    page.until(lambda: page.texts("#samples .count") == ["2 rows"])
    page.choose("#samples .row label:nth-of-type(2) select", f"{HOSTILE}0")
    assert page.column("samples", 1) == [f"{HOSTILE} id"]
    page.click("#samples a.open")
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

    page.click("#samples a.open")
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
    page.click("#samples a.open")
    assert page.js("document.querySelector('dialog').scrollWidth <= document.querySelector('dialog').clientWidth")
    page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})
