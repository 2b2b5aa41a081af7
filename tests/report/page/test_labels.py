"""Labels of settings, and which of them is the baseline."""

import json

import pandas as pd
import pytest

from kvbench.report.page.labels import with_labels
from kvbench.report.tables.differences import full_of
from tests.support.report_run import record

FULL = {"_target_": "kvbench.methods.FullKV", "storage": {"_target_": "kvbench.methods.Dense"}}


def of(*parameters: dict) -> pd.DataFrame:
    rows = [record("s", "full", 1.0, parameters=json.dumps(each)) for each in parameters]
    return with_labels(pd.DataFrame([*rows, record("s", "snapkv 0.2", 1.0)])).assign(setting=lambda rows: rows["label"])


@pytest.mark.parametrize("turn", [1, -1])
def test_of_several_versions_of_fullkv_the_newest_is_the_baseline(turn):
    made = of(*[FULL, FULL | {"versions": {"Dense": 2, "FullKV": 2}}, FULL | {"versions": {"FullKV": 2}}][::turn])
    assert made["label"].nunique() == 4
    assert "versions.Dense=2" in full_of(made)
    assert (made["method"] == "full").sum() == 1


@pytest.mark.parametrize("versions", ["2", {"FullKV": "2"}])
def test_versions_that_are_none_are_no_reason_to_end(versions):
    assert full_of(of(FULL | {"versions": versions})) == "full"
