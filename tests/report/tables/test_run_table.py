"""Tables and figures from records alone."""

import numpy as np
import pandas as pd
import pytest
from matplotlib import colormaps
from PIL import Image

from kvbench.report.figures.needle_heatmap import draw_heatmaps
from kvbench.report.figures.style import SCALE
from kvbench.report.tables.run_table import FLOORED, MISSED, OFF, UNEVEN, run_table, summarise, write_run_table
from kvbench.report.tables.text_table import MISSING, column_groups, widths

DRAWN = "95 % interval: bootstrap over 6 texts or problems drawn independently"


def records(settings=("full", "snapkv 0.2"), lengths=(1024, 2048), depths=(0, 50, 100), floored=False, missed=False):
    rng = np.random.default_rng(0)
    return pd.DataFrame(
        [
            {
                "setting": setting,
                "sample": f"{length}-{depth}",
                "method": setting.split()[0],
                "ratio": None if setting == "full" else 0.2,
                "budget": None,
                "length": length,
                "depth": depth,
                "r": 1.0 if setting == "full" else 0.2,
                "r_bytes": 1.0 if setting == "full" else 0.6,
                "scores": {"digits": 1.0 if setting == "full" else rng.random(), "exact": 1.0},
                "decode_steps": 10,
                "decode_seconds": 0.5,
                "decode_batch": 1,
                "floored": floored,
                "target_missed": missed,
            }
            for setting in settings
            for length in lengths
            for depth in depths
        ]
    )


def test_a_summary_has_a_row_per_setting_with_means():
    frame = records()
    summary = summarise(frame, ["digits", "exact"])
    assert summary["setting"].tolist() == ["full", "snapkv 0.2"]
    mean = frame[frame.setting == "snapkv 0.2"]["scores"].map(lambda s: s["digits"]).mean()
    assert summary["digits"][1] == pytest.approx(mean)
    assert summary["low"][1] < mean < summary["high"][1]
    assert summary["decode_tokens_per_s"].tolist() == [20, 20]
    table = run_table(summary, ["digits", "exact"], "")
    header, rows = table.header, table.rows
    assert all(len(row) == len(header) for row in rows)
    assert rows[1][:4] == ["SnapKV", "0.2", "0.200", "0.600"]


def test_means_over_different_samples_are_told_from_those_over_the_same_however_many_they_are():
    frame = records()
    whole = summarise(frame, ["digits"])
    assert (
        "samples" not in run_table(whole, ["digits"], "").header
        and UNEVEN not in run_table(whole, ["digits"], "").notes
    )
    places = frame.groupby("setting").cumcount()
    as_many = frame[places != frame["setting"].map({"full": 0, "snapkv 0.2": 5})]  # 5 of 6 each, 4 of them the same
    table = run_table(summary := summarise(as_many, ["digits"]), ["digits"], "")
    assert summary["samples"].tolist() == [5, 5] and summary["lacking"].tolist() == [1, 1]
    assert UNEVEN in table.notes and [row[table.header.index("samples")] for row in table.rows] == ["5", "5"]


def test_answers_that_think_and_never_answer_are_counted():
    """They counted as wrong answers, and nothing said why."""
    frame = records().assign(prediction="<think>so</think> 7")
    assert "thinking" not in "".join(run_table(summarise(frame, ["digits"]), ["digits"], "").notes)
    frame.loc[frame.index[-2:], "prediction"] = [" <think>so", "<think>"]
    summary = summarise(frame, ["digits"])
    assert summary["thinking_never_ends"].tolist() == [0, 2]
    note = "answers that begin with <think> and never end it: full: 0 of 6; snapkv 0.2: 2 of 6"
    assert note in run_table(summary, ["digits"], "").notes


# Bytes of one record: 1,000 of a prompt's 5,000, which 100 tokens take, and 16 tokens decoded one by one.
GROWN = {
    "prompt_tokens": 100,
    "full_bytes": 5000,
    "stored_bytes": 1000,
    "decode_tokens": 16,
    "decode_bytes_mean": 1000 + 50 * 8.5,
    "decode_bytes_end": 1000 + 50 * 16,
    "r_mean": (1000 + 50 * 8.5) / (5000 + 50 * 8.5),
    "r_read": (1000 + 50 * 8.5) / (5000 + 50 * 8.5),
}
UNFOLDED = {"decode_bytes_mean": 1000 + 150 * 8.5, "decode_bytes_end": 1000 + 150 * 16, "r_mean": 2275 / 5425}
EVICTED = {"decode_bytes_mean": 1050.0, "decode_bytes_end": 1000, "r_mean": 1050 / 5425, "r_read": 1050 / 5425}
WHOLE_AT_FIRST = {"decode_bytes_mean": 1425 + 4000 / 16, "r_mean": 1675 / 5425, "r_read": 1675 / 5425}


@pytest.mark.parametrize("task", [None, "a"])
def test_samples_about_one_context_are_drawn_together(task):
    frame = records(settings=("snapkv 0.2",), lengths=range(12), depths=range(5))
    frame["scores"] = [{"digits": float(length % 2), "exact": 1.0} for length in frame["length"]]
    if task:
        frame["task"] = task
    alone = summarise(frame, ["digits", "exact"]).loc[0]
    together = summarise(frame.assign(context_id=frame["length"].astype(str)), ["digits", "exact"]).loc[0]
    assert together["digits"] == alone["digits"] == 0.5
    assert together["high"] - together["low"] > 1.8 * (alone["high"] - alone["low"])


def test_a_table_says_what_its_intervals_draw():
    def note(**columns):
        return run_table(summarise(records().assign(**columns), ["digits"]), ["digits"], "").notes[-1]

    assert note() == DRAWN
    two = "95 % interval: bootstrap over 2 texts or problems drawn independently with 6 samples"
    assert note(unit=[*"aaabbb"] * 2) == note(context_id=[*"aaabbb"] * 2) == two
    assert note(unit="a").startswith("no interval: all samples with a score are about one text")


@pytest.mark.parametrize("task", [None, "a"])
def test_samples_of_which_no_answer_is_known_have_no_part_in_the_interval(task):
    """There was none, and it was said to be over all samples."""
    frame = records().assign(**{"task": task} if task else {})
    known = frame[frame["length"] == frame["length"].min()].index
    few = frame.assign(scores=frame["scores"].where(frame.index.isin(known), pd.Series([{}] * len(frame))))
    of_few, alone = (summarise(rows, ["digits"]) for rows in (few, frame.loc[known]))
    assert of_few[["digits", "low", "high", "units"]].equals(alone[["digits", "low", "high", "units"]])
    table = run_table(of_few, ["digits"], "")
    assert MISSING not in {row[5] for row in table.rows}
    assert table.notes[-1] == DRAWN.replace("6", "3")


def test_a_setting_without_any_score_is_none_of_those_whose_units_a_table_counts():
    """The intervals were said to be over 0 to 6 texts."""
    frame = records()
    frame = frame.assign(scores=frame["scores"].where(frame["method"] != "full", pd.Series([{}] * len(frame))))
    assert run_table(summarise(frame, ["digits"]), ["digits"], "").notes[-1].startswith(DRAWN)


def header_of(frame):
    return run_table(summarise(frame, ["digits"]), ["digits"], "").header[2:]


@pytest.mark.parametrize("changes", [{}, UNFOLDED | {"r_read": UNFOLDED["r_mean"]}])
def test_caches_that_only_grow_with_each_token_need_no_mean_over_decoding(changes):
    frame = records().assign(**GROWN | changes)
    assert header_of(frame)[:3] == ["r", "r_bytes", "digits"]
    assert summarise(frame, ["digits"])["r_mean"].notna().all()  # for table.csv
    unread = frame.assign(decode_tokens=0, decode_bytes_mean=1000, decode_bytes_end=1000, r_mean=0.2, r_read=0.2)
    assert header_of(unread)[:3] == ["r", "r_bytes", "digits"]


@pytest.mark.parametrize("changes", [EVICTED, WHOLE_AT_FIRST])
def test_a_cache_that_changes_while_decoding_has_its_mean_shown(changes):
    frame = records().assign(**GROWN)
    frame.loc[frame.index[-1], [*changes]] = [*changes.values()]
    assert header_of(frame)[:4] == ["r", "r_bytes", "r_mean", "digits"]


def test_bytes_read_are_shown_where_they_differ_from_those_held():
    frame = records().assign(**GROWN | {"r_read": 0.1})
    assert header_of(frame)[:4] == ["r", "r_bytes", "r_read", "digits"]


def test_records_of_earlier_versions_have_neither():
    assert header_of(records())[:3] == ["r", "r_bytes", "digits"]


def test_a_requested_ratio_that_r_is_far_from_is_marked_once():
    near, far = records().assign(r=0.219), records().assign(r=0.074)
    assert not summarise(near, ["digits"])["off"].any()
    table = run_table(summarise(far, ["digits"]), ["digits"], "")
    assert [row[1] for row in table.rows] == ["–", "0.2†"]
    assert table.notes == [f"† {OFF}", DRAWN] and "control=exact" in OFF
    for other in ({"floored": True}, {"target_missed": True}, {"ratio": None, "budget": 64}):
        assert not summarise(far.assign(**other), ["digits"])["off"].any()
    of_total = far.assign(setting=far["setting"] + " of total")
    assert not summarise(of_total, ["digits"])["off"].any()


def test_the_table_of_a_usual_run_breaks_no_word_of_a_header_in_80_columns():
    metrics = ["digits", "exact", "top1", "kl"]
    frame = records(("full", "streaming_llm 0.2")).assign(decode_batch=2)
    frame["scores"] = [dict.fromkeys(metrics, 0.5)] * len(frame)
    table = run_table(summarise(frame, metrics), metrics, "")
    found = widths(table.header, table.rows, 80)
    words = [max(map(len, name.split())) for name in table.header]
    assert sum(found) + 2 * (len(found) - 1) <= 80
    assert all(column >= word for column, word in zip(found, words, strict=True))


def test_speed_is_that_of_sequences_that_decoded_alone():
    frame = records()
    frame.loc[frame.index[0], ["decode_batch", "decode_seconds"]] = [2, 50.0]
    summary = summarise(frame, ["digits"])
    assert summary["decode_tokens_per_s"].tolist() == [20, 20]
    summary = summarise(frame.assign(decode_batch=2), ["digits"])
    assert summary["decode_tokens_per_s"].isna().all()
    table = run_table(summary, ["digits"], "")
    header, rows = table.header, table.rows
    assert "tokens/s" not in header and all(len(row) == len(header) for row in rows)


def test_tables_are_the_same_when_made_twice(tmp_path):
    texts = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        paths = write_run_table(summarise(records(), ["digits"]), ["digits"], tmp_path / name, "caption")
        texts.append([path.read_bytes() for path in paths])
    assert texts[0] == texts[1]
    assert "caption" in texts[0][1].decode()


def test_a_setting_with_more_than_requested_is_marked(tmp_path):
    summary = summarise(records(floored=True), ["digits"])
    _, markdown = write_run_table(summary, ["digits"], tmp_path, "caption")
    assert FLOORED in markdown.read_text()
    assert "0.2*" in markdown.read_text()
    assert run_table(summary, ["digits"], "t").markdown().endswith(f"\\* {FLOORED}\n\n{DRAWN}\n")


def test_a_setting_that_missed_its_ratio_is_marked_and_records_without_the_field_are_not(tmp_path):
    summary = summarise(records(missed=True), ["digits"])
    _, markdown = write_run_table(summary, ["digits"], tmp_path, "caption")
    assert "0.2§" in markdown.read_text() and f"§ {MISSED}" in markdown.read_text()
    earlier = summarise(records().drop(columns="target_missed"), ["digits"])
    assert not earlier["target_missed"].any()


def test_a_narrow_terminal_folds_headers_at_spaces_then_names_and_breaks_no_word_of_a_header():
    header, rows = ["setting", "prefill seconds", "batch"], [["spindlekv_paper 0.4", "12.345", "1"]]
    assert widths(header, rows, 80) == [19, 15, 5]
    assert widths(header, rows, 38) == [19, 10, 5]
    assert widths(header, rows, 33) == [17, 7, 5]
    assert widths(header, rows, 24) == widths(header, rows, 10) == [12, 7, 5]  # parts of the table are for these
    assert widths(header, [], 80) == [7, 15, 5]
    assert widths(["", "a longlongword", "ab cd"], [["x", "1", "2"]], 19) == [
        1,
        12,
        2,
    ]


def test_settings_that_a_terminal_has_no_room_for_come_in_a_table_below():
    widths = [6, 7, *[6] * 5]
    assert column_groups(widths, 2, 80) == [list(range(7))]
    assert column_groups(widths, 2, 31) == [[0, 1, 2, 3], [0, 1, 4, 5], [0, 1, 6]]
    assert column_groups(widths, 2, 5) == [[0, 1, i] for i in range(2, 7)]
    assert column_groups([6, 7], 2, 5) == [[0, 1]]


@pytest.mark.heavy
@pytest.mark.parametrize("count, lengths, depths", [(1, 1, 1), (2, 2, 3), (9, 2, 5), (3, 40, 21)])
def test_heatmaps_of_any_number_of_settings_are_drawn(rendered, tmp_path, count, lengths, depths):
    frame = records(
        ["full", *(f"m{i} 0.2" for i in range(count - 1))], range(1000, 1000 + lengths), np.linspace(0, 100, depths)
    )
    png, pdf = draw_heatmaps(frame, "digits", tmp_path / "heatmap", "caption")
    pixels = np.asarray(Image.open(png).convert("RGB")).reshape(-1, 3)
    assert len(np.unique(pixels @ [1 << 16, 1 << 8, 1])) > 20  # a colour as one number
    light = colormaps[SCALE](1.0, bytes=True)[:3]
    assert (pixels == light).all(axis=1).any()  # the light end: FullKV's 1.0
    assert pdf.read_bytes().startswith(b"%PDF")


def windowed(held: float, kept: float = 0.2) -> pd.DataFrame:
    """Records of a model whose sliding layers hold 400 of 1,000 bytes; 10 tokens of 6 bytes are decoded."""
    frame = records(settings=("snapkv 0.2",))
    stored = 400 + 600 * kept
    figures = {
        "window_bytes": 400,
        "r_full": kept,
        "r_bytes_full": kept,
        "r_bytes_floor": 0.4,
        "r_bytes": stored / 1000,
    }
    full_mean, full_end = 1000 + 33, 1000 + 60
    decoded = {"decode_bytes_mean": held, "r_mean": held / full_mean, "decode_bytes_end": stored + 60}
    return frame.assign(**figures, **decoded, r=stored / 1000, r_end=(stored + 60) / full_end, full_bytes=1000).assign(
        stored_bytes=stored, prompt_tokens=100, decode_tokens=10
    )


def test_where_layers_have_a_sliding_window_both_shares_and_the_floor_are_said():
    summary = summarise(windowed(520 + 33), ["digits"])
    table = run_table(summary, ["digits"], "")
    assert table.header[2:6] == ["r", "r_bytes", "r_bytes_full", "digits"]
    assert table.rows[0][2:5] == ["0.520", "0.520", "0.200"]
    assert any("the other layers alone take 0.400 of FullKV's bytes" in note for note in table.notes)
    assert not summary["off"][0]  # the ratio was requested of the other layers
    assert summarise(windowed(520 + 33, kept=0.4), ["digits"])["off"][0]


def test_a_windows_tokens_are_no_change_of_a_cache_while_decoding():
    assert not summarise(windowed(520 + 33), ["digits"])["changes_while_decoding"][0]
    assert summarise(windowed(520 + 13), ["digits"])["changes_while_decoding"][0]
