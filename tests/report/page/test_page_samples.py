"""Samples on the page in a real browser: paged, filtered, opened, beside each other, by mouse and keys."""

import pytest

from kvbench.cache.kept_positions import decode
from tests.support.page import SETTINGS, keys, opened_page
from tests.support.report_run import LAYERS, record, write_run

pytestmark = pytest.mark.heavy


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
    page.choose(selects.format(2), "SnapKV 0.2")
    assert page.texts("#samples th:last-child")[0] == "output"
    page.choose(selects.format(3), "wrong")
    assert page.texts("#samples .count") == ["1 – 50 of 80 rows"]
    assert all("✗ 0.00" in text for text in page.column("samples", 5))
    page.choose(selects.format(2), "FullKV")
    assert page.column("samples", 1) == ["no sample passes the filters"]
    page.choose(selects.format(2), "")
    page.choose(selects.format(3), "differ")
    assert page.texts("#samples .count") == ["1 – 50 of 120 rows"]


def test_a_sample_opens_with_everything_side_by_side(page):
    page.click("#samples tbody tr:nth-child(3) a.open")
    assert page.one("#sample-title").text == "needle-1000-0-2"
    assert page.one(".prompt").text == "… a tale of needle-1000-0-2. What?"
    assert page.one(".prompt mark").text == "What?"
    assert page.texts(".answers li") == ["an answer"]
    assert page.texts(".card .output") == [f"{setting} says 2" for setting in SETTINGS]
    assert [t.split()[-1] for t in page.texts(".card .score")] == ["1.00", "0.00", "0.50", "0.00"]
    assert page.texts(".bars figcaption")[1].replace("\u00a0", " ") == "kept: 20 % in every layer"
    assert page.js("document.querySelectorAll('.card:nth-child(2) .bars rect').length") == LAYERS


def test_a_strip_shows_exactly_the_positions_of_the_record(page):
    page.click("#samples a.open")
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
    page.js("document.querySelector('#samples tbody tr:nth-child(2) a.open').focus()")
    page.key(k.ENTER)
    assert page.one("#sample-title").text == "needle-1000-0-1"
    page.key(k.ARROW_RIGHT)
    assert page.one("#sample-title").text == "needle-1000-0-2"
    page.key(k.ARROW_LEFT, k.ARROW_LEFT, k.ARROW_LEFT)  # there is none before the first
    assert page.one("#sample-title").text == "needle-1000-0-0"
    page.key(k.ESCAPE)
    assert not page.one("dialog").get_property("open")
    assert page.js("document.activeElement.textContent") == "needle-1000-0-1"  # where it was opened from


def test_samples_without_a_score_are_listed_and_opened(driver, tmp_path):
    rows = [record(sample, "full", 1.0, f"output {sample}", scores={}) for sample in ("one", "two")]
    page = opened_page(driver, [write_run(tmp_path / "unscored", rows)], "#samples tbody tr")
    assert page.column("samples", 1) == ["one", "two"] and "Score against bytes" not in page.texts("h2")
    assert page.column("settings", 5) == ["–"]
    page.click("#samples tbody tr:first-child a.open")
    assert page.one("#sample-title").text == "one" and "output one" in page.one("#sample").text
    assert not page.complaints()
