"""The table of a speed run."""

from kvbench.report.tables.speed_table import by_machine, notes, speed_table, speeds
from kvbench.runner import outputs
from tests.support.speed_runs import frame_of


def test_speeds_are_over_fullkv_of_the_same_place():
    frame = speeds(
        frame_of(
            {"method": "snapkv", "length": 512, "decode_tokens_per_s": 30.0},
            {"method": "snapkv", "length": 1024, "decode_tokens_per_s": 8.0},
            {"method": "full", "length": 1024, "decode_tokens_per_s": 16.0},
            {"method": "full", "length": 512, "decode_tokens_per_s": 20.0},
        )
    )
    assert frame[["length", "method"]].values.tolist() == [
        *([512, "snapkv"], [512, "full"], [1024, "snapkv"], [1024, "full"])
    ]
    assert frame["over_full"].tolist() == [1.5, 1.0, 0.5, 1.0]
    assert frame["low"].tolist() == [5.0] * 4 and frame["high"].tolist() == [20.0] * 4
    table = speed_table(frame, "", [])
    header, rows = table.header, table.rows
    assert "largest" not in header and "GPU MiB" not in header
    assert rows[0][header.index("slowest – fastest")] == "5.0 – 20.0"
    narrow = speed_table(frame, "", [], wide=False)
    short, rows = narrow.header, narrow.rows
    assert {"slowest – fastest", "new"} & {*header} and not {"slowest – fastest", "new"} & {*short}
    assert {len(row) for row in rows} == {len(short)}


def test_without_fullkv_there_is_no_ratio_to_it():
    table = speed_table(speeds(frame_of({"method": "snapkv"}, {"method": "h2o"})), "", [])
    assert "× full" not in table.header


def test_times_of_another_machine_its_threads_torch_or_kernels_are_not_compared():
    slow = {"machine": "laptop", "threads": 2, "torch": "2.13", "kernels": "torch"}
    others = [{"machine": "server"}, {"threads": 8}, {"torch": "2.14"}, {"kernels": "numba 0.68.1"}]
    made = [{"method": "snapkv", "decode_tokens_per_s": 30.0, **slow, **other} for other in ({}, *others)]
    records = frame_of({"method": "full", **slow}, *made)
    over = speeds(records).groupby("setting", sort=False)["over_full"].agg(list)
    assert over["full"] == [1.0] and over["snapkv"][0] == 3.0 and all(ratio != ratio for ratio in over["snapkv"][1:])
    assert [group["method"].tolist() for group in by_machine(records)] == [["full", "snapkv"], *[["snapkv"]] * 4]


def test_a_run_has_a_table_for_each_machine(tmp_path, monkeypatch):
    load = {"conditions": {"before": {"load": 0.1}, "after": {"load": 0.2}}, "repeats_seconds": {"decode": [1.0]}}
    rows = [{"method": "full", "machine": machine, "threads": 2, "torch": "2.13", **load} for machine in ("A", "B")]
    monkeypatch.setattr(outputs, "records_of", lambda run, folder: (frame_of(*rows), ""))
    monkeypatch.setattr(outputs, "stamped", lambda run, folder, caption: "a caption")
    monkeypatch.setattr(outputs, "run_caption", lambda run, title: "")
    monkeypatch.setattr(outputs.run_figures, "speed", lambda records, path, caption: [])
    outputs.report_speed(None, tmp_path, None)
    text = (tmp_path / "table.md").read_text()
    assert [text.count(words) for words in ("| FullKV |", "repeat on A,", "repeat on B,")] == [2, 1, 1]
    assert len((tmp_path / "table.csv").read_text().splitlines()) == 3


def test_records_without_a_manifest_are_compared_and_name_no_kernels():
    load = {"conditions": {"before": {"load": 0.1}, "after": {"load": 0.2}}, "repeats_seconds": {"decode": [1.0]}}
    where = {"machine": "laptop", "threads": 2, "torch": "2.13", "kernels": None, **load}
    records = frame_of({"method": "full", **where}, {"method": "snapkv", "decode_tokens_per_s": 30.0, **where})
    (group,) = by_machine(records)
    assert speeds(group)["over_full"].tolist() == [1.0, 3.0]
    assert "torch 2.13; load" in notes(group, speeds(group))[0]
    named = group.assign(kernels="torch")
    assert "torch 2.13, kernels of torch; load" in notes(named, speeds(named))[0]
