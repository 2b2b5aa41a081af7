"""Decoding speed beside a frontier: which records it is of, and the figure's second panel."""

import json

import pandas as pd
import pytest

from kvbench.errors import UserError
from kvbench.report.figures import style
from kvbench.runner.frontier import main
from kvbench.runner.frontier_speed import decoding
from tests.support.runs import run

SCORED = pd.DataFrame(
    [
        {
            "setting": setting,
            "parameters": "{}",
            "model": "m",
            "weights": None,
            "dtype": "float32",
            "prompt_tokens": 900,
        }
        for setting in ("full", "knorm 0.5", "knorm 0.25")
    ]
)


def measured(setting, decode_tokens_per_s, **changes):
    """A record of speed as `load` gives it."""
    return {
        **{"kind": "speed", "setting": setting, "method": setting.split()[0], "parameters": "{}", "fits": True},
        **{"ratio": None, "budget": None, "length": 1000, "new_tokens": 64, "batch": 1, "sequences": 1},
        **{"model": "m", "weights": None, "dtype": "float32", "machine": "CPU", "threads": 2, "decode_steps": 10},
        **{"decode_tokens_per_s": decode_tokens_per_s, "spread_seconds": {"decode": {"min": 0.5, "max": 2.0}}},
    } | changes


def found(*rows):
    frame, of = decoding(pd.DataFrame(rows), SCORED)
    return dict(zip(frame["setting"], frame["decode_tokens_per_s"], strict=True)), of


def test_speeds_are_those_of_the_settings_that_were_scored_and_of_the_same_model():
    speeds, of = found(
        measured("full", 10.0),
        measured("knorm 0.5", 20.0),
        measured("knorm 0.25", 30.0, parameters='{"other": 1}'),
        measured("knorm 0.25", 31.0, dtype="bfloat16"),
        measured("knorm 0.25", 32.0, weights="abc"),
        measured("knorm 0.25", None, fits=False),
        measured("h2o 0.5", 40.0),
    )
    assert speeds == {"full": 10.0, "knorm 0.5": 20.0}
    assert of == "decoding: 64 tokens after 1,000, batch 1, CPU, 2 threads"


def test_of_several_places_it_is_one_with_all_settings_then_the_nearest_prompt_then_the_smallest_batch():
    both = [
        measured(setting, speed, length=length, batch=batch)
        for length, batch, speed in [(1000, "largest", 4.0), (1000, 8, 5.0), (1000, 4, 6.0), (4000, 1, 7.0)]
        for setting in ("full", "knorm 0.5")
    ]
    speeds, of = found(*both, measured("full", 9.0, length=900))
    assert speeds == {"full": 6.0, "knorm 0.5": 6.0}
    assert "after 1,000, batch 4" in of


@pytest.mark.parametrize("changes", [{"kind": "method"}, {"model": "other"}, {"setting": "h2o 0.5"}, {"fits": False}])
def test_without_a_speed_of_these_settings_there_is_none(changes):
    assert decoding(pd.DataFrame([measured("full", 1.0) | changes]), SCORED) is None


@pytest.fixture
def command(tiny_folder, tmp_path) -> list[str]:
    path = tmp_path / "prompts.jsonl"
    rows = [{"context": f"{i} ships left the harbour at dawn, {i + 1} came back. " * 4} for i in range(3)]
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")
    model = [f"model.path={tiny_folder}", "model.shape=null", "model.max_length=4096", f"output_dir={tmp_path}"]
    return [*model, "benchmark=jsonl", f"benchmark.path={path}", "benchmark.max_new_tokens=4", "method=knorm"]


@pytest.mark.heavy
def test_a_run_of_speed_gives_the_figure_its_second_panel(command, monkeypatch):
    speed = [*command[:4], "benchmark=speed", "benchmark.lengths=[64]", "benchmark.batches=[1]", "benchmark.repeats=1"]
    speed += ["benchmark.new_tokens=4", "benchmark.largest=false", "method=[full,knorm]", "ratio=[0.5,0.25]"]
    folder = run(*speed)
    drawn = []
    monkeypatch.setattr(style, "save", lambda figure, path: drawn.append(figure) or [])
    main([*command, "passes=0", f"speed={folder}"])
    (axis,) = [axis for part in drawn[-1].subfigs for axis in part.axes if "tokens / s" in axis.get_xlabel()]
    assert [len(line.get_xdata()) for line in axis.lines[2:4]] == [2, 1]  # of six ratios two were measured; FullKV
    caption = " ".join(text.get_text() for part in drawn[-1].subfigs for text in part.texts)
    assert "decoding: 4 tokens after 64, batch 1" in " ".join(caption.split())
    assert "r_bytes: share of FullKV's bytes" in [axis.get_xlabel() for part in drawn[-1].subfigs for axis in part.axes]
    monkeypatch.setattr("kvbench.records.served_bytes.WIDE", ())  # as of a checkpoint that is published in 16 bits
    main([*command, "passes=0"])
    *_, bars = drawn[-1].subfigs[0].axes
    assert bars.get_xlabel() == "r_bytes_16: share of FullKV's bytes"


@pytest.mark.heavy
def test_a_folder_without_speeds_of_the_model_is_refused_before_the_model_is_loaded(command, undisturbed, monkeypatch):
    monkeypatch.setattr("kvbench.runner.run.load", lambda spec: pytest.fail("loaded"))
    with pytest.raises(UserError, match=r"holds no records of benchmark=speed for model 'smollm2-135m'"):
        main([*command, f"speed={undisturbed}"])
