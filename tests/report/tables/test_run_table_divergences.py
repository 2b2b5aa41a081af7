"""Divergences in a run's table."""

import pandas as pd

from kvbench.report.tables.run_table import run_table, summarise
from tests.support.report_run import record


def test_small_divergences_are_told_from_none():
    kl = {"full": 0.0, "ggml_q8_0": 0.0000891, "snapkv 0.2": 0.1136}
    rows = [record(f"s{i}", name, 0.5) | {"scores": {"digits": 0.5, "kl": kl[name]}} for name in kl for i in range(3)]
    table = run_table(summarise(pd.DataFrame(rows), ["digits", "kl"]), ["digits", "kl"], "")
    digits, divergence = (table.header.index(name) for name in ("digits", "kl"))
    assert [row[divergence] for row in table.rows] == ["0", "8.9e-05", "0.11"] and table.rows[0][digits] == "0.500"
