"""The table of a speed run."""

from kvbench.report.tables.speed_table import speed_table, speeds
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
