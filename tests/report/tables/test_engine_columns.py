"""What tables say of other engines."""

import pandas as pd

from kvbench.report.tables.engine_columns import engine_notes, has_engines, of_engines


def rows(**columns) -> pd.DataFrame:
    return pd.DataFrame({"kind": ["engine"] * 2, **columns})


def test_bytes_are_marked_by_their_source():
    both = of_engines(rows(reported_bytes=[9000, 9000], stated_bytes=[100, 200], repeated=[None, {"equal": False}]))
    assert both == {"cache_bytes": "150 stated, 9,000 reported", "asked_twice": 1, "same_twice": 0}
    none = of_engines(rows(reported_bytes=[None, None], stated_bytes=[None, None], repeated=[None, None]))
    assert none == {"cache_bytes": "–", "asked_twice": 0, "same_twice": 0}
    counted = of_engines(rows(stored_bytes=[10.0, 20.0], repeated=[None, None]))
    assert counted["cache_bytes"] == "15 counted"


def test_answers_asked_for_twice_are_told_of_by_setting():
    summary = pd.DataFrame({"setting": ["a", "b", "c"], "asked_twice": [2, 0, 1], "same_twice": [1, 0, 1]})
    assert engine_notes(summary) == ["equal answers to samples that were asked twice: a 1 of 2, c 1 of 1"]
    assert engine_notes(summary.assign(asked_twice=0)) == []
    assert len(engine_notes(summary.assign(kl_at_least=0.1))) == 2


def test_equal_answers_and_tokens_of_another_template_are_told_of_by_setting():
    compared = of_engines(rows(repeated=[None] * 2, equal=[True, None], served_tokens=[12, 14], prompt_tokens=[10, 11]))
    assert (compared["compared"], compared["equal_answers"], compared["served"]) == (1, 1, "13 and 10")
    summary = pd.DataFrame([{"setting": "a", "asked_twice": 0, "same_twice": 0}, {"setting": "b", **compared}])
    assert engine_notes(summary) == [
        "answers equal to those of the first engine: b 1 of 1",
        "mean prompt tokens in the server's template, and in kvbench's: b 13 and 10",
    ]


def test_records_of_methods_have_no_engines():
    assert has_engines(rows()) and not has_engines(rows().assign(kind="method"))
    assert not has_engines(pd.DataFrame({"a": [1]}))
