"""The frontier on the page in a real browser: its table, its sentence and its plot."""

import pytest

pytestmark = pytest.mark.heavy

TABLE = "#frontier tbody tr:nth-child({}) > *"


def test_the_table_is_that_of_the_command_and_the_sentence_stands_above_it(page):
    assert page.texts("#frontier th")[:4] == ["method", "held", "possible", "ratio"]
    assert page.texts(TABLE.format(1)) == ["SnapKV", "0.400", "0.400", "0.4", "0.890", "2"]
    assert page.texts(TABLE.format(2)) == ["H2O", "–", "≤ 0.200", "–", "–", "1"]  # without an interval
    assert page.texts("#frontier p:not(.note):not(.tip)") == [
        "On 120 samples SnapKV certainly keeps 95 % of FullKV's score in 0.400 of FullKV's bytes (SnapKV 0.4), "
        "possibly in 0.400: fewer than any other method. By these samples H2O may need as few. It is the best of 2 "
        "methods by these samples, which favours a lucky one: confirm it on others."
    ]
    assert page.texts("#frontier .note")[0] == "grid · tiny"


def test_numbers_sort_as_numbers_and_what_has_none_comes_last(page):
    for _ in range(2):
        page.click("#frontier th:nth-child(2) button")
        assert page.column("frontier", 1) == ["SnapKV", "H2O"]


def test_the_plot_marks_every_setting_fullkv_and_the_front(page):
    page.until(lambda: page.all("#frontier .point"))
    told = [mark.get_attribute("aria-label") for mark in page.all("#frontier .point")]
    assert told == [
        "FullKV: r_bytes 1.000, score 0.900, on the Pareto front",
        "SnapKV 0.2: r_bytes 0.200, score 0.400 (bounds 0.300 and 0.500)",
        "SnapKV 0.4: r_bytes 0.400, score 0.890 (bounds 0.880 and 0.900), held, on the Pareto front",
        "H2O 0.2: r_bytes 0.200, score 0.600, on the Pareto front",
    ]
    assert len(page.all("#frontier .least")) == 1 and not page.all("#plot .least")


def test_hidden_methods_are_hidden_here_too_and_a_run_without_a_frontier_has_no_section(page):
    page.click(".methods label:nth-of-type(2) input")
    assert page.column("frontier", 1) == ["H2O"]
    page.until(lambda: len(page.all("#frontier .point")) == 2)
    page.choose("#controls label:nth-of-type(1) select", "1")
    assert not page.all("#frontier")
