"""Runs of speed on the page."""

from kvbench.report.page.speed_data import read_speed
from tests.support.command import kvbench
from tests.support.page import blocks
from tests.support.report_run import manifest, record, speed_record, write_run


def test_a_speed_run_on_the_page_is_its_own_table(tmp_path):
    rows = [speed_record("full", 10.0), speed_record("snapkv 0.2", 25.0)]
    made = read_speed(write_run(tmp_path / "speed", rows, manifests=[manifest()]))
    (table,) = made["tables"]
    assert made["name"] == "speed" and made["model"] == "tiny" and made["manifests"] == [manifest()]
    assert table["caption"] == "speed · tiny (float32) · AMD EPYC, 2 threads"
    assert [(row["method"], row["title"], row["cells"][0]) for row in table["rows"]] == [
        ("full", "FullKV", "FullKV"),
        ("snapkv", "SnapKV", "SnapKV 0.2"),
    ]
    cells = dict(zip(table["header"], table["rows"][1]["cells"], strict=True))
    assert (cells["prefill s"], cells["tokens/s"], cells["× full"]) == ("2.000", "25.0", "2.50")
    assert (cells["cache MiB"], cells["largest"]) == ("1.0", "7")
    assert table["notes"][0].startswith("Medians of 1 repeat on AMD EPYC, 2 threads, torch 2.13.0")


def test_times_of_different_machines_stand_in_tables_of_their_own(tmp_path):
    rows = [
        speed_record("full", 10.0),
        speed_record("full", 40.0, threads=8),
        speed_record("snapkv 0.2", 80.0, threads=8),
    ]
    made = read_speed(write_run(tmp_path / "speed", rows, manifests=[manifest()]))
    assert [table["caption"].rpartition(" · ")[2] for table in made["tables"]] == [
        "AMD EPYC, 2 threads",
        "AMD EPYC, 8 threads",
    ]
    over_full = made["tables"][1]["header"].index("× full")
    assert [row["cells"][over_full] for row in made["tables"][1]["rows"]] == ["1.00", "2.00"]


def test_tables_of_one_machine_are_told_apart_by_torch_and_kernels(tmp_path):
    """The plot takes the rates of tables that say the same for one another's."""
    rows = [speed_record("full", 10.0), speed_record("h2o", 40.0, torch="2.14.0"), speed_record("knorm", 20.0)]
    rows[2]["run"] = "another"
    made = [manifest(kernels="torch"), manifest(run="another", kernels="numba 0.68.1")]
    tables = read_speed(write_run(tmp_path / "speed", rows, manifests=made))["tables"]
    assert [table["machine"] for table in tables] == [
        "AMD EPYC, 2 threads, torch 2.13.0, kernels of torch",
        "AMD EPYC, 2 threads, torch 2.14.0, kernels of torch",
        "AMD EPYC, 2 threads, torch 2.13.0, kernels of numba 0.68.1",
    ]


def test_speed_runs_join_the_page_of_others_and_make_one_alone(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_run(tmp_path / "a", [record("s", "full", 1.0)])
    write_run(tmp_path / "b", [speed_record("full", 10.0)], manifests=[manifest()])
    assert kvbench("report", "a", "b") == kvbench("report", "b") == 0
    together, alone = (blocks(path.read_text()) for path in (tmp_path / "report.html", tmp_path / "b" / "report.html"))
    assert together["runs"] == ["a"] and alone["runs"] == [] and "run-0" not in alone
    assert together["speeds"] == alone["speeds"] == [read_speed(tmp_path / "b")]
