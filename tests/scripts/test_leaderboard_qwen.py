"""scripts/results/leaderboard_qwen.py: settings that can be compared, and RULER's tasks by what FullKV solves."""

import pandas as pd
import pytest

from kvbench.errors import UserError
from kvbench.evaluation.settings import settings_of
from scripts.results import leaderboard_qwen
from scripts.results.leaderboard_qwen import (
    DECIDING,
    DECIDING_MODEL,
    FEWER_TARGETS,
    PARTS,
    RULER,
    TARGETS,
    WINDOW,
    board,
    configuration,
)


@pytest.fixture(scope="module")
def cfg(tmp_path_factory):
    return configuration("qwen2.5-coder-0.5b", "visible_4k", 3, tmp_path_factory.mktemp("runs"))


def poolings(node) -> set[tuple[int, str]]:
    """Kernel and pooling of each scorer within a method."""
    if not hasattr(node, "items"):
        return set()
    own = {(node["kernel"], node["pooling"])} if "kernel" in node and "pooling" in node else set()
    return own.union(*(poolings(value) for value in node.values()))


def test_methods_that_observe_a_window_of_queries_have_the_same_window_and_pooling(cfg):
    windows = {setting.method.needs.window: setting.name for setting in settings_of(cfg)}
    assert {*windows} - {0} == {1, WINDOW} and windows[1] == "tova"  # whose paper is about the last query
    assert poolings(cfg.method) == {(7, "max"), (1, "max")}
    assert [name for name in cfg.method if (1, "max") in poolings(cfg.method[name])] == ["chunkkv"]  # chunks, instead


def test_a_part_has_no_more_samples_than_are_asked_for_and_every_target(cfg):
    assert cfg.limit == 3 and cfg.method["snapkv"]["ratio"] == list(TARGETS)
    assert configuration("qwen2.5-coder-0.5b", "visible_4k", 1000, leaderboard_qwen.ROOT).limit == 100


def test_a_part_in_float32_has_ratios_whose_shares_of_a_16_bit_cache_are_the_targets(cfg, tmp_path):
    model = "qwen2.5-coder-0.5b"
    wide = configuration(model, "hidden_4k_float32", 3, tmp_path)
    assert wide.model.dtype == "float32" and cfg.model.dtype == "bfloat16"
    assert wide.method["snapkv"]["ratio"] == list(FEWER_TARGETS)
    shares = zip(wide.method["spindle"]["ratio"], FEWER_TARGETS, strict=True)
    assert all(0.95 < ratio / target < 1 for ratio, target in shares)
    assert "hidden_4k_float32" not in board(model).measures
    assert board(model, ["hidden_4k_float32"]).heading.split(", ")[1] == "float32"


def test_the_tasks_of_ruler_are_those_that_full_kv_solves_once_all_are_decided(monkeypatch, tmp_path):
    model, decided = "qwen2.5-coder-1.5b", tmp_path / DECIDING_MODEL / DECIDING / "ruler-x"
    with pytest.raises(UserError, match=f"has 0 of 110 records: --models {DECIDING_MODEL} --parts {DECIDING} makes"):
        configuration(model, "ruler_4k", None, tmp_path)
    decided.mkdir(parents=True)
    (decided / "records.jsonl").touch()
    means = {f"unsolved_{number}": 0.4 for number in range(9)} | {"cwe": 0.5, "niah_single_1": 1.0}
    rows = [{"task": task, "scores": {"score": score}} for task, score in means.items()] * 10
    monkeypatch.setattr(leaderboard_qwen, "load", lambda folder: pd.DataFrame(rows[:-1]))
    with pytest.raises(UserError, match="has 109 of 110 records"):  # another shard is still at work
        configuration(model, "ruler_4k", None, tmp_path)
    monkeypatch.setattr(leaderboard_qwen, "load", lambda folder: pd.DataFrame(rows))
    cfg = configuration(model, "ruler_4k", None, tmp_path)
    assert cfg.benchmark["tasks"] == ["cwe", "niah_single_1"] and cfg.limit == 40
    assert cfg.method["pyramidkv"]["scoring"]["window"] == WINDOW and "random" not in cfg.method


def test_the_deciding_part_runs_full_kv_alone(tmp_path):
    parts = PARTS[DECIDING_MODEL]
    assert parts["ruler_4k"].overrides == RULER and [*parts].index(DECIDING) < [*parts].index("ruler_4k")
    cfg = configuration(DECIDING_MODEL, DECIDING, None, tmp_path)
    assert [setting.name for setting in settings_of(cfg)] == ["full"] and cfg.limit == 10
