"""Distances from FullKV on the page in a real browser: chosen, drawn, and never called right or wrong."""

import re

import pytest

from tests.support.page import opened_page
from tests.support.report_run import manifest, record, write_run

pytestmark = pytest.mark.heavy

SCORE = "#controls label:first-of-type select"
FAR = {"full": (0.0, 0.0), "snapkv 0.2": (1.3, -5.0), "knorm 0.2": (0.02, -1.0)}  # kl, answer_loglik


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Needles of two lengths, each at two depths, with distances."""
    rows = [
        record(
            f"needle-{i}",
            setting,
            float(i % 2),
            length=1000 * (1 + i % 2),
            depth=100 * (i // 2 % 2),
            distance={"kl": kl, "answer_loglik": loglik - i / 10 * bool(loglik)},
        )
        for i in range(8)
        for setting, (kl, loglik) in FAR.items()
    ]
    return write_run(tmp_path_factory.mktemp("far") / "far", rows, manifests=[manifest(settings=[*FAR])])


def test_a_distance_replaces_the_score_in_every_section_and_has_no_heatmap(driver, folder):
    page = opened_page(driver, [folder], "#heatmaps table")
    page.choose(SCORE, "kl")
    marks = [mark.get_attribute("aria-label") for mark in page.all("#plot .point")]
    assert len(marks) == 3 and all(", kl " in mark for mark in marks)
    assert page.texts("#samples thead th")[-1] == "mean kl" and not page.all("#heatmaps")
    page.choose(SCORE, "exact")
    assert page.all("#heatmaps table") and not page.complaints()


def test_negative_values_are_drawn_inside_the_chart(driver, folder):
    page = opened_page(driver, [folder], "#heatmaps table")
    page.choose(SCORE, "answer_loglik")
    height = float(page.one("#plot .plot svg").get_dom_attribute("viewBox").split()[3])
    places = [mark.get_dom_attribute("transform") for mark in page.all("#plot path.mark")]
    tops = [float(re.fullmatch(r"translate\(\S+ (\S+)\)", place)[1]) for place in places]
    assert tops[0] < tops[2] < tops[1] < height - 44  # above the axis: FullKV's 0, -1, -5
    assert {"-6", "0"} <= {*page.texts("#plot svg text")} and not page.complaints()


def test_no_distance_is_called_right_or_wrong(driver, folder):
    page = opened_page(driver, [folder], "#heatmaps table")
    shown = "#samples .row label:nth-of-type(3) select"
    page.choose(shown, "wrong")
    page.choose(SCORE, "kl")
    assert page.texts(f"{shown} option") == ["all samples", "samples where settings differ"]
    assert len(page.column("samples", 1)) == 8
    page.click("#samples a.open")
    assert page.texts(".card .score") == ["0", "1.3", "0.02"]
    page.choose("#samples .row label:nth-of-type(2) select", "SnapKV 0.2")
    assert page.texts("#samples td .score") == ["1.3"] * 8
    page.choose(SCORE, "exact")
    assert {text[:2] for text in page.texts("#samples td .score")} == {"✓ ", "✗ "} and not page.complaints()


def test_small_divergences_are_told_from_none(driver, tmp_path):
    rows = [
        record(f"s{i}", setting, 1.0, distance={"kl": kl * (i + 1)})
        for i in range(8)
        for setting, kl in (("full", 0.0), ("knorm 0.2", 0.00000011))
    ]
    page = opened_page(driver, [write_run(tmp_path / "near", rows)], "#plot .point")
    page.choose(SCORE, "kl")
    assert page.column("settings", 8) == ["0", "5e-7"]
    told = [mark.get_attribute("aria-label") for mark in page.all("#plot .point")]
    assert "kl 5e-7 (95 % interval 3.2e-7 – 9.4e-7)" in told[1] and "0.00" not in told[1].split("kl")[1]


def test_small_divergences_of_two_runs_side_by_side_are_told_apart(driver, tmp_path):
    folders = [
        write_run(
            tmp_path / name,
            [
                record(f"s{i}", setting, 1.0, distance={"kl": kl * (i + 1)})
                for i in range(8)
                for setting, kl in (("full", 0.0), ("knorm 0.2", of))
            ],
        )
        for name, of in (("near", 2e-5), ("nearer", 1e-5))
    ]
    page = opened_page(driver, folders, "#plot .point")
    for number, choice in ((2, "kl"), (4, "1")):
        page.choose(f"#controls label:nth-of-type({number}) select", choice)
    assert [page.column("beside", column)[1] for column in (2, 3, 4)] == ["0.00009", "0.000045", "-0.000045"]
    low, high = map(float, page.column("beside", 5)[1].split(" to "))
    assert low < -4.5e-5 < high < 0 and not page.complaints()
