"""Two runs side by side, and the links to what is shown, in a real browser."""

from types import SimpleNamespace
from xml.etree import ElementTree

import numpy as np
import pytest

from kvbench.metrics.bootstrap import OF_SCORES, paired_interval
from kvbench.report.page.command import main
from tests.support.page import HOSTILE, Page, grid_run, hidden_run, keys, opened_page
from tests.support.report_run import record, write_run

pytestmark = pytest.mark.heavy

SVG = "{http://www.w3.org/2000/svg}"


@pytest.fixture(scope="module")
def address(tmp_path_factory):
    folder = tmp_path_factory.mktemp("beside")
    out = folder / "page.html"
    main([str(grid_run(folder)), str(hidden_run(folder)), "--out", str(out)])
    return out.as_uri()


@pytest.fixture
def opened(driver, address):
    """Opens the page anew at a fragment; afterwards nothing may have been complained of."""

    def open_at(fragment=""):
        driver.get("about:blank")
        driver.get(address + fragment)
        page = Page(driver)
        page.until(lambda: page.all("#plot .point"))
        return page

    yield open_at
    assert not [entry["message"] for entry in driver.get_log("browser")]


def select(number):
    return f"#controls label:nth-of-type({number}) select"


def hash_of(page):
    return page.js("location.hash")


def test_settings_of_two_runs_stand_beside_each_other_with_their_difference(opened):
    page = opened()
    assert not page.all("#beside")
    page.choose(select(4), "1")
    assert page.texts("#beside th button") == [
        *("setting", "score: question visible", "score: question hidden", "difference", "95 % interval", "samples"),
        *("r_bytes: question visible", "r_bytes_16: question hidden"),
    ]
    assert page.column("beside", 1) == ["FullKV", "SnapKV 0.2"]  # of one name in both
    assert page.column("beside", 6) == ["20", "20"]
    assert [page.texts(f"#beside tbody tr:nth-child(2) > :nth-child({i})")[0] for i in (2, 3, 4)] == [
        *("1.000", "0.750", "-0.250")
    ]
    low, high = map(float, page.column("beside", 5)[1].split(" to "))
    assert (low, high) == pytest.approx(paired_interval([1.0, 0.5] * 10, [1.0] * 20), abs=0.03)
    told = [mark.get_attribute("aria-label") for mark in page.all("#plot .point")]
    assert len(told) == 7 and sum(text.startswith("question hidden: ") for text in told) == 3
    assert len(page.all("#plot .mark.beside")) == 3
    assert len(page.all("#heatmaps table")) == 6 and len(page.all("#heatmaps .heat.still")) == 2
    page.choose(select(1), "1")  # a run is not beside itself
    assert not page.all("#beside")


def test_a_tasks_difference_counts_once_and_samples_of_a_context_are_drawn_together(opened):
    page = opened()
    one = "[...Array(10)].map((_, i) => [{here: 0, there: i % 2}])"
    many = f"[{', '.join(['[{here: 0, there: 0}]'] * 30)}]"
    low, high = page.js(f"pairedInterval([{one}, {many}])")
    there, tasks = [0.0, 1.0] * 5 + [0.0] * 30, [0] * 10 + [1] * 30
    assert (low, high) == pytest.approx(paired_interval(there, [0.0] * 40, tasks), abs=0.02)
    random = np.random.default_rng(0)
    here, there = random.random(12).tolist(), random.random(12).tolist()
    contexts = [[{"here": a, "there": b}] for a, b in zip(here, there, strict=True)]
    assert page.js(f"pairedInterval([{contexts}])") == pytest.approx(paired_interval(there, here), abs=0.04)
    assert page.js(f"pairedInterval([{contexts}], false)") == pytest.approx(
        paired_interval(there, here, bounds=None), abs=1e-5
    )
    texts = [[{"here": a, "there": b, "context": i}] for i, (a, b) in enumerate(zip(here, there, strict=True))]
    labels = [*range(12)] * 2
    for bounded, bounds in (("true", OF_SCORES), ("false", None)):  # two tasks about the same texts
        assert page.js(f"pairedInterval([{texts}, {texts}], {bounded})") == pytest.approx(
            paired_interval(there * 2, here * 2, [0] * 12 + [1] * 12, labels, bounds), abs=0.04 if bounds else 1e-5
        )
        some = paired_interval(there * 2, here * 2, [0] * 12 + [1] * 12, [*range(12), *range(6, 18)], bounds)
        later = [[{**pair, "context": pair["context"] + 6}] for (pair,) in texts]
        found = page.js(f"pairedInterval([{texts}, {later}], {bounded})")
        assert found == pytest.approx(some, abs=0.04 if bounds else 1e-5)
    uneven = [[{"here": a, "there": b}] * (6 if a == here[0] else 1) for a, b in zip(here, there, strict=True)]
    pairs = [(pair["here"], pair["there"], i) for i, samples in enumerate(uneven) for pair in samples]
    for bounded, bounds in (("true", OF_SCORES), ("false", None)):  # a third of the samples are about one text
        of_here, of_there, texts_of = zip(*pairs, strict=True)
        expected = paired_interval(of_there, of_here, clusters=texts_of, bounds=bounds)
        found = page.js(f"pairedInterval([{uneven}], {bounded})")
        assert found == pytest.approx(expected, abs=0.1 if bounds else 1e-5)
    assert page.js("pairedInterval([[[{here: 0, there: 1}, {here: 0, there: 0}]]])") == [None, None]
    ties = f"[{', '.join(['[{here: 0.5, there: 0.5}]'] * 30)}]"
    assert page.js(f"pairedInterval([{ties}])") == pytest.approx(paired_interval([0.5] * 30, [0.5] * 30), abs=0.02)
    assert page.js(f"pairedInterval([{ties}], false)") == [None, None]


@pytest.mark.parametrize(
    "one, model, other, differ",
    [("a", "m", "b", True), ("a", "m", "a", False), ("a", "another", "b", False), ("a", "m", "", False)],
)
def test_samples_of_one_name_with_other_prompts_are_no_pairs(opened, one, model, other, differ):
    page = opened()
    runs = [{"model": "m", "samples": {"end": [one]}}, {"model": model, "samples": {"end": [other]}}]
    assert page.js(f"otherPrompt({runs[0]}, 0, {runs[1]}, 0)") == differ
    assert page.js(f"otherPrompt({runs[0]}, 0, {runs[1]}, undefined)") is False


def test_two_runs_do_not_stick_out_of_a_phone(opened):
    page = opened()
    size = {"width": 360, "height": 800, "deviceScaleFactor": 1, "mobile": False}
    page.driver.execute_cdp_cmd("Emulation.setDeviceMetricsOverride", size)
    page.choose(select(4), "1")
    assert page.js("document.documentElement.scrollWidth <= innerWidth")
    page.driver.execute_cdp_cmd("Emulation.clearDeviceMetricsOverride", {})


def test_a_sample_shows_the_outputs_of_both_runs_and_where_its_answer_stands(opened):
    page = opened("#run=hidden&beside=grid&sample=needle-1000-100-1&card=SnapKV+0.2")
    assert page.one("#sample-title").text == "needle-1000-100-1"
    chosen = ".card.chosen"
    assert page.texts(f"{chosen} h4 a") == ["SnapKV 0.2"]
    assert page.texts(f"{chosen} .output") == ["snapkv 0.2 hides 1", "snapkv 0.2 says 1"]
    assert page.texts(f"{chosen} .run") == ["question hidden ~ 0.50", "question visible ✓ 1.00"]
    assert page.texts(".evidence") == [f"… The number is {HOSTILE}4711. …"]
    assert page.texts(".evidence mark") == [f"{HOSTILE}4711"]
    assert "50\u00a0% into the prompt" in page.texts("dialog .note")


def test_every_choice_is_in_the_address_and_a_link_restores_it(opened):
    page = opened()
    page.choose(select(2), "exact")
    page.choose(select(4), "1")
    page.click("#plot input[value=r]")
    page.click(".methods label:nth-of-type(3) input")
    page.choose("#differences select", "SnapKV 0.4")
    page.choose("#samples .row label:nth-of-type(2) select", "SnapKV 0.2")
    page.choose("#samples .row label:nth-of-type(3) select", "wrong")
    page.type("#search", "50 a&b=c")
    page.until(lambda: "words" in hash_of(page))
    expected = "#beside=hidden&score=exact&hide=h2o&across=r&baseline=SnapKV+0.4"
    expected += "&words=50+a%26b%3Dc&setting=SnapKV+0.2&show=wrong"
    assert hash_of(page) == expected
    page = opened(expected)
    values = "[...document.querySelectorAll('select, #search')].map((e) => e.value)"
    assert page.js(values) == ["0", "exact", "", "1", "SnapKV 0.4", "50 a&b=c", "SnapKV 0.2", "wrong"]
    assert page.js("document.querySelector('#plot input[value=r]').checked")
    assert page.column("settings", 1) == ["FullKV", "SnapKV 0.2", "SnapKV 0.4"]


def test_back_and_forth_go_through_what_was_opened(opened):
    page = opened("#at=samples")
    page.click("#samples tbody tr:nth-child(2) a.open")
    assert hash_of(page) == "#sample=needle-1000-0-1&at=samples"
    page.key(keys().ARROW_RIGHT)  # takes the place of the last one
    assert page.one("#sample-title").text == "needle-1000-0-2"
    page.driver.back()
    page.until(lambda: not page.one("dialog").get_property("open"))
    assert hash_of(page) == "#at=samples"
    page.driver.forward()
    page.until(lambda: page.one("dialog").get_property("open"))
    assert page.one("#sample-title").text == "needle-1000-0-2"
    page.key(keys().ESCAPE)
    page.until(lambda: hash_of(page) == "#at=samples")
    page.choose(select(1), "1")
    page.driver.back()
    page.until(lambda: "visible" in page.one("#caption").text)


def test_links_follow_the_choices_and_unknown_ones_are_left_out(opened):
    page = opened("#run=gone&score=gone&beside=gone&sample=gone&across=gone&setting=gone&task=gone&at=gone")
    assert "visible" in page.one("#caption").text and not page.one("dialog").get_property("open")
    assert len(page.column("samples", 1)) == 50
    page.choose(select(1), "1")
    first = page.one("#samples a.open").get_attribute("href")
    page.choose("#samples .row label:nth-of-type(2) select", "FullKV")
    second = page.one("#samples a.open").get_attribute("href")
    assert "run=hidden" in first and "setting" not in first and "setting=FullKV" in second
    page.driver.get("about:blank")
    page.driver.get(second)
    page.until(lambda: page.all("#sample-title"))
    assert page.one("#sample-title").text == "needle-1000-100-0"


def test_bytes_in_16_bits_have_their_name_wherever_they_stand(opened):
    page = opened("#run=hidden&sample=needle-1000-100-1")
    assert "r_bytes_16: bytes stored over FullKV's" in page.one("#caption").text
    named = page.texts(".card p") + page.texts("#settings thead th") + page.texts("#heatmaps caption")
    named += page.texts("#plot label") + page.texts("#plot text")
    named += [mark.get_attribute("aria-label") for mark in page.all("#plot .point")]
    named = [text for text in named if "r_bytes" in text]
    assert len(named) == 3 + 1 + 3 + 1 + 1 + 3 and all("r_bytes_16" in text for text in named)


def test_a_page_without_an_address_of_its_own_works_all_the_same(opened):
    page = opened()
    page.js("history.pushState = history.replaceState = () => { throw new DOMException('no', 'SecurityError'); }")
    page.choose(select(4), "1")
    assert len(page.column("beside", 1)) == 2
    page.click("#samples a.open")
    assert page.one("#sample-title").text == "needle-1000-0-0" and not hash_of(page)


def saved(page, css):
    """Name and text of the SVG that a button of `css` saves."""
    page.js("HTMLAnchorElement.prototype.click = function () { window.name = this.download; }")
    page.js("URL.createObjectURL = (blob) => { window.blob = blob; return 'blob:made'; }")
    page.js("[...document.querySelectorAll(arguments[0])].find((b) => b.textContent === 'SVG').click()", css)
    text = page.driver.execute_async_script("window.blob.text().then(arguments[0])")
    return SimpleNamespace(name=page.js("window.name"), text=text, root=ElementTree.fromstring(text.encode()))


def test_charts_are_saved_as_svg_with_their_colours_in_light(opened):
    page = opened("#beside=hidden")
    page.choose(select(3), "dark")
    made = saved(page, "#plot .save")
    assert made.name == "score.svg"
    assert page.js("document.documentElement.dataset.theme") == "dark"  # as before
    assert not any(word in made.text for word in ("var(", "light-dark", "oklab", " class=", "tabindex", " style="))
    paper = made.root.find(f"{SVG}rect")
    assert paper.get("fill") == "#ffffff" and paper.get("width") == made.root.get("width")
    texts = ["".join(node.itertext()) for node in made.root.iter(f"{SVG}text")]
    assert {"r_bytes (bytes stored)", "score", "SnapKV", "question hidden"} <= {*texts}
    assert not any(text.startswith("SnapKV 0.2:") for text in texts)  # names of marks are hidden
    fills = {node.get("fill") for node in made.root.iter(f"{SVG}path")}
    assert {"rgb(0, 158, 115)", "rgb(255, 255, 255)"} <= fills


def test_heatmaps_and_cards_are_saved_as_they_are_seen(opened):
    page = opened("#sample=needle-1000-0-0")
    made = saved(page, "#heatmaps .save")
    texts = ["".join(node.itertext()) for node in made.root.iter(f"{SVG}text")]
    assert texts.count("0.50") >= 12 and {"FullKV", "SnapKV 0.2", "1000"} <= {*texts}
    fills = {node.get("fill") for node in made.root.iter(f"{SVG}rect")}
    assert len(fills) >= 4 and all(fill.startswith(("rgb(", "#")) for fill in fills)
    card = saved(page, ".card .save")
    assert card.name == "needle-1000-0-0-FullKV.svg"
    assert next(card.root.iter(f"{SVG}text")).text == "FullKV"
    assert card.root.find(f"{SVG}image").get("href").startswith("data:image/png;base64,")


def test_means_beside_each_other_are_over_tasks_also_where_some_samples_have_none(driver, tmp_path):
    def run(name, memory, scores):
        rows = [
            record(f"{task}-{i}", "full", score, task=task, memory=memory)
            for task, of_task in scores.items()
            for i, score in enumerate(of_task)
        ]
        return write_run(tmp_path / name, rows)

    folders = [
        run("one", "shared", {"qa": [1.0] * 6, None: [0.0] * 2}),
        run("two", "stream", {"qa": [1.0] * 6, None: [0.5] * 2}),
    ]
    page = opened_page(driver, folders, "#plot .point")
    page.choose(select(4), "1")
    assert page.column("beside", 2) == page.column("settings", 5) == ["0.500"]
    assert page.column("beside", 3) == ["0.750"] and not page.complaints()
