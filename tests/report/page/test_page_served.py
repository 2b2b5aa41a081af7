"""Runs of servers under load on the page in a real browser."""

import pytest

from tests.support.page import opened_page
from tests.support.served_runs import served_runs

pytestmark = [pytest.mark.heavy, pytest.mark.filterwarnings("ignore:no manifest of run")]


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    return served_runs(tmp_path_factory.mktemp("served"))


def test_serving_stands_beside_the_answers_sorts_as_numbers_and_hides_with_the_settings(driver, folders):
    page = opened_page(driver, folders, "#served table")
    assert page.texts("h2")[:4:3] == ["Score against speed", "Latency and throughput of servers"]
    equal, tokens = (page.texts("#served th button").index(name) + 1 for name in ("equal answers", "tokens/s"))
    assert page.column("served", equal) == ["–", "–", "190 of 200", "190 of 200", "100 of 200", "100 of 200"]
    page.click(f"#served th:nth-child({tokens}) button")
    assert page.column("served", 1)[0] == "q8_0 · 4 at once"
    page.click(".methods label:nth-of-type(2) input")
    assert {name.partition(" ")[0] for name in page.column("served", 1)} == {"f16", "q4_0"}
    assert not page.complaints()


def test_the_plot_has_the_score_against_what_was_served_and_no_bytes_that_are_unknown(driver, folders):
    page = opened_page(driver, folders, "#served table")
    page.until(lambda: page.all("#plot .point"))
    assert [one.strip() for one in page.texts("#plot label")] == [
        f"{figure}, {rate} at once" for figure in ("tokens/s served", "first token in ms") for rate in (1, 4)
    ]
    told = [mark.get_attribute("aria-label") for mark in page.all("#plot .point")]
    assert told[1].startswith("q8_0: 60 tokens/s, score 1.000") and told[1].endswith("on the Pareto front")
    page.click("#plot label:last-of-type input")
    told = [mark.get_attribute("aria-label") for mark in page.all("#plot .point")]
    assert told[2].startswith("q4_0: first token in ms, 4 at once: 200, score 0.500")
    assert not page.complaints()


def test_a_page_of_loads_alone_has_their_table(driver, folders):
    page = opened_page(driver, folders[1:], "#served table")
    assert page.one("h1").text == "Servers under load"
    assert page.texts("h2") == ["Latency and throughput of servers", "Provenance"]
    assert len(page.column("served", 1)) == 6 and not page.complaints()
