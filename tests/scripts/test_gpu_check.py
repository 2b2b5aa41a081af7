"""scripts/gpu_check.py on a tiny model: every stage runs, its report says what was equal, and time limits hold."""

import json
import sys

import pytest

from scripts import gpu_check
from scripts.gpu.report import goals
from scripts.gpu.stages import Clock, attempted


@pytest.mark.heavy
def test_a_dry_run_goes_through_every_stage(tmp_path, monkeypatch):
    """All presets go through the same code; some of each kind of cache do here."""
    names = ["full", "snapkv", "spindle", "kivi", "minicache", "pyramidinfer"]
    words = ["gpu_check.py", "--dry-run", f"--out={tmp_path}", "--name=here", "--presets", *names]
    monkeypatch.setattr(sys, "argv", words)
    gpu_check.main()
    result = json.loads((tmp_path / "here" / "results.json").read_text())
    assert list(result["presets"]) == names
    for one in result["presets"].values():
        assert one["kept_equal"] and one["stored_equal"] and one["tokens_equal"] and one["largest_difference"] == 0
    assert "add_column_sums" in result["kernels"]["operators"]
    assert [length["n"] for length in result["speed"]] == [300, 700] and not result["skipped"]
    for length in result["speed"]:
        assert "error" not in length and {"batch", "generate", "column_sums"} <= set(length)
        assert not [name for name, one in length["settings"].items() if "error" in one]
    text = (tmp_path / "here" / "README.md").read_text()
    assert "| spindle | equal | equal | equal |" in text and "## Goals" in text


def test_what_there_is_no_time_for_is_skipped_and_named():
    clock = Clock(minutes=1)
    assert list(clock.each(["a", "b"])) == ["a", "b"]
    clock.stage(-1)
    assert list(clock.each([1, 2], name="bytes of {}".format)) == []
    assert clock.skipped == ["bytes of 1", "bytes of 2"]


def test_an_error_is_a_result_and_goals_without_one_are_empty(capsys):
    assert attempted(lambda: 1 / 0) == {"error": "ZeroDivisionError: division by zero"}
    found = {name: value for name, _, value in goals([{"n": 8, "error": "no"}])}
    assert set(found.values()) == {""}
    length = {"n": 8, "prefill_seconds": 2.0, "settings": {"full": {"decode_tokens_per_s": 10.0}}}
    length["settings"]["spindle"] = {"decode_tokens_per_s": 12.0, "compress_seconds": 0.1}
    assert [value for _, _, value in goals([length])] == ["8: 1.20", "8: 5.0%", "", ""]
