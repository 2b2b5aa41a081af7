"""Runs of speed on the page in a real browser."""

import pytest

from kvbench.configuration.conf import composed
from tests.support.page import grid_run, opened_page
from tests.support.report_run import manifest, speed_record, write_run

pytestmark = pytest.mark.heavy


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    folder = tmp_path_factory.mktemp("speed")
    timed = {"full": 10.0, "snapkv 0.2": 9.5, "knorm 0.2": 25.0}
    rows = [speed_record(setting, rate, run="timed") for setting, rate in timed.items()]
    speed = write_run(
        folder / "speed", rows, manifests=[manifest(run="timed", config=composed(["benchmark=speed", "ratio=0.2"]))]
    )
    return grid_run(folder), speed


def test_speed_stands_beside_the_scores_and_hides_with_the_methods(driver, folders):
    page = opened_page(driver, folders, "#speed table")
    assert page.texts("h2")[1:6:3] == ["Bytes at equal quality", "Speed and memory"]
    assert page.texts("#speed .note")[0] == "speed · tiny (float32) · AMD EPYC, 2 threads"
    assert page.texts("#provenance tbody tr > :first-child") == ["run-1", "timed"]
    place = page.texts("#speed th button").index("tokens/s") + 1
    page.click(f"#speed th:nth-child({place}) button")
    assert page.column("speed", place) == ["25.0", "10.0", "9.5"]
    assert page.texts(".methods label")[-1] == " KNorm"
    page.click(".methods label:nth-of-type(2) input")
    assert page.column("speed", 1) == ["FullKV", "KNorm 0.2"]
    assert not page.complaints()


def test_the_plot_has_the_score_against_the_measured_speed_where_faster_is_better(driver, folders):
    page = opened_page(driver, folders, "#speed table")
    assert page.texts("h2")[0] == "Score against bytes and speed"
    axis = "tokens/s, prompt of 640, batch of 1"
    assert page.texts("#plot label")[-1].strip() == f"{axis} (11 new tokens; AMD EPYC, 2 threads, torch 2.13.0)"
    page.click("#plot label:last-of-type input")
    assert [mark.get_attribute("aria-label") for mark in page.all("#plot .point")] == [
        "FullKV: 10 tokens/s, score 1.000 (95 % interval 0.98 – 1.00), 120 samples, on the Pareto front",
        "SnapKV 0.2: 9.5 tokens/s, score 0.333 (95 % interval 0.25 – 0.42), 120 samples",
    ]
    assert axis in page.texts("#plot svg text")
    assert not page.complaints()


def test_a_page_of_speed_runs_alone_has_their_tables_and_provenance(driver, folders):
    page = opened_page(driver, folders[1:], "#speed table")
    assert page.texts("h2") == ["Speed and memory", "Provenance"]
    assert page.column("speed", 1) == ["FullKV", "SnapKV 0.2", "KNorm 0.2"]
    assert page.texts("#provenance .command") == ["kvbench benchmark=speed ratio=0.2"]
    assert page.texts("#provenance .note") == ["Command of timed."]
    assert page.texts("#controls legend") == ["methods"]
    assert not page.complaints()


def test_speeds_of_two_engines_are_never_on_one_axis_and_the_largest_batch_is_one(driver, folders, tmp_path):
    places = [("eager", 1, 1), ("graph", 1, 1), ("eager", "largest", 12), ("eager", "largest", 40)]
    rows = [
        speed_record(
            setting, 10.0 * place + (setting == "full"), key=f"{setting} {place}", sample=f"{engine} {batch}",
            decode_engine=engine, batch=batch, sequences=sequences,
        )
        for place, (engine, batch, sequences) in enumerate(places, 1)
        for setting in (["full", "snapkv 0.2"] if batch == 1 else ["full"] if sequences == 12 else ["snapkv 0.2"])
    ]  # fmt: skip
    page = opened_page(driver, [folders[0], write_run(tmp_path / "engines", rows)], "#speed table")
    axes = [text.split(" (")[0].strip() for text in page.texts("#plot label") if "tokens/s" in text]
    expected = ("batch of 1", "batch of 1, graph", "largest batch")
    assert axes == [f"tokens/s, prompt of 640, {batch}" for batch in expected]
    for place, (full, snapkv) in enumerate([("11", "10"), ("21", "20"), ("31", "40")], -3):
        page.js("[...document.querySelectorAll('#plot label input')].at(arguments[0]).click()", place)
        marks = [mark.get_attribute("aria-label").split(" tokens")[0] for mark in page.all("#plot .point")]
        assert marks == [f"FullKV: {full}", f"SnapKV 0.2: {snapkv}"]
    assert not page.complaints()
