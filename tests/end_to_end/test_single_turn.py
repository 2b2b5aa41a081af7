"""BABILong, LongBench v2, InfiniteBench and NoLiMa from the configuration to tables, on a tiny model and a few rows."""

import json
from pathlib import Path

import pytest

from kvbench.errors import UserError
from kvbench.metrics import babilong, infinitebench, longbench_v2, nolima
from kvbench.records import load
from tests.support.paths import DATA
from tests.support.published_prompts import (
    babilong_prompts,
    longbench_v2_prompt,
    longbench_v2_rows,
    nolima_data,
)
from tests.support.runs import reported


def arguments(model: Path, out: Path, *more: str) -> list[str]:
    small = ["model.shape=null", "model.max_length=4096", "method=[full,snapkv]", "ratio=0.4", f"output_dir={out}"]
    return [f"model.path={model}", *small, *more]


def first_cells(table: Path) -> list[str]:
    return [line.split(" | ")[0].strip("| ") for line in table.read_text().splitlines() if line.startswith("|")][2:]


def test_babilong_from_rows_to_scores(tiny_folder, tmp_path, monkeypatch):
    prompts = babilong_prompts(tmp_path, ["qa1", "qa8"], monkeypatch)
    data = [f"benchmark.data_dir={DATA / 'babilong'}", f"benchmark.prompts_file={prompts}", "limit=2"]
    tasks = ["benchmark=babilong", "benchmark.tasks=[qa1,qa8]", "benchmark.lengths=[0k]", "question=hidden"]
    folder = reported(*arguments(tiny_folder, tmp_path / "runs", *data, *tasks))
    records = load(folder)
    assert len(records) == 4 * 2 and records["question"].eq("hidden").all()
    for record in records.to_dict("records"):
        again = babilong.score(record["qa"], record["prediction"], record["answers"][0], record["asked"])
        assert record["scores"] == {"score": again}
    assert first_cells(folder / "tasks.md") == ["qa1 0k", "qa8 0k"]


def test_longbench_v2_from_rows_to_scores(tiny_folder, tmp_path, monkeypatch):
    prompts = longbench_v2_prompt(tmp_path, monkeypatch)
    (tmp_path / "data.json").write_text(json.dumps(longbench_v2_rows()))
    data = [f"benchmark.data_dir={tmp_path}", f"benchmark.prompts_file={prompts}", "benchmark.max_length=100"]
    folder = reported(*arguments(tiny_folder, tmp_path / "runs", *data, "benchmark=longbench_v2", "question=hidden"))
    records = load(folder)
    assert len(records) == 3 * 2 and records["cut"].all()
    for record in records.to_dict("records"):
        assert record["scores"] == longbench_v2.score(record["prediction"], record["answers"][0])
    assert first_cells(folder / "tasks.md") == ["overall", "easy", "hard", "short", "medium", "long"]


def test_infinitebench_from_rows_to_scores(tiny_folder, tmp_path):
    """With the official prompts, as the installed lm-eval has them."""
    data = [f"benchmark.data_dir={DATA / 'infinitebench'}", "limit=1"]
    benchmark = [*data, "benchmark=infinitebench", "benchmark.max_length=128"]
    tasks = ["benchmark.tasks=[passkey,kv_retrieval]"]  # answers to the others may have hundreds of tokens
    folder = reported(*arguments(tiny_folder, tmp_path / "runs", *benchmark, *tasks))
    records = load(folder)
    assert len(records) == 2 * 2 and records["cut"].all()
    for record in records.to_dict("records"):
        again = infinitebench.score(record["task"], record["prediction"], record["answers"])
        assert record["scores"] == {"score": again}
    rows = ["passkey", "kv_retrieval", "retrieval (2 of 3)", "average of 2 tasks"]
    assert first_cells(folder / "tasks.md") == rows
    with pytest.raises(
        UserError, match=r"'code_run-1' does not separate its question from its context: use question=visible"
    ):
        reported(*arguments(tiny_folder, tmp_path / "runs", *benchmark, "benchmark.tasks=code_run", "question=hidden"))


def test_nolima_from_needles_to_scores(tiny_folder, tmp_path, monkeypatch):
    data = nolima_data(tmp_path, monkeypatch)
    where = [f"benchmark.data_dir={data}", f"benchmark.prompts_file={data / 'run_tests.py'}", "limit=2"]
    grid = ["benchmark=nolima", "benchmark.lengths=[250]", "benchmark.depths=[0,100]", "question=hidden"]
    folder = reported(*arguments(tiny_folder, tmp_path / "runs", *where, *grid))
    records = load(folder)
    assert len(records) == 2 * 2 and records["length"].eq(250).all()
    for record in records.to_dict("records"):
        assert record["scores"] == {"score": nolima.contains(record["prediction"], record["answers"])}
    assert first_cells(folder / "tasks.md") == ["250"]
    assert (folder / "heatmap.png").exists()
