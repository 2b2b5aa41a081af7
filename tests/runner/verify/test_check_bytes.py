"""Bytes that a record claims, beside the least that its storage can take."""

import json

import pytest

from kvbench.configuration import configured
from kvbench.evaluation.settings import build_settings
from kvbench.methods import Eviction, KNorm
from kvbench.methods.heads.base import HeadBudgets
from kvbench.runner.verify.check_bytes import bytes_fit
from kvbench.runner.verify.folder import read
from kvbench.runner.verify.verdict import Verdict
from tests.support.fixtures import saved_tiny
from tests.support.forged import Forged
from tests.support.runs import run

METHODS = ("attention_matching", "key_rerotation", "xkv", "palu", "turboquant_2", "fp8_head")


@pytest.fixture(scope="module")
def honest(tiny_folder, tmp_path_factory):
    given = (f"model.path={tiny_folder}", f"output_dir={tmp_path_factory.mktemp('storages')}", "ratio=0.5")
    sample = ("benchmark=niah", "benchmark.lengths=[320]", "benchmark.depths=[50]", "benchmark.max_new_tokens=2")
    return run(*given, "model.shape=null", "model.max_length=4096", *sample, f"method=[{','.join(METHODS)}]")


def test_honest_bytes_of_every_storage_have_nothing_wrong(honest):
    assert bytes_fit(read(honest)).verdict is not Verdict.WRONG


@pytest.fixture(scope="module")
def windowed(embedded, tmp_path_factory):
    """FullKV on a model whose layers all have a window, which the longer prompt exceeds."""
    config = saved_tiny(embedded, tmp_path_factory.mktemp("windowed"), family="mistral") / "config.json"
    config.write_text(json.dumps(json.loads(config.read_text()) | {"sliding_window": 400}))
    given = (f"model.path={config.parent}", f"output_dir={tmp_path_factory.mktemp('windows')}", "method=full")
    sample = ("benchmark=niah", "benchmark.lengths=[320,800]", "benchmark.depths=[50]", "benchmark.max_new_tokens=2")
    return run(*given, "model.shape=null", "model.max_length=4096", *sample, "limit=2")


def test_fullkv_of_windows_alone_has_nothing_wrong(windowed):
    folder = read(windowed)
    assert [record.get("full_layers") for record in folder.records] == [None, []]
    assert bytes_fit(folder).verdict is not Verdict.WRONG


def test_fewer_bytes_than_those_of_windows_alone_are_wrong(windowed, tmp_path):
    forged = Forged(windowed, tmp_path / "run", None)
    for record in forged.records:
        if "full_layers" in record:
            record["window_bytes"] //= 2
            record["r_bytes_floor"] = record["window_bytes"] / record["full_bytes"]
    assert any("no layer that a method compresses" in note for note in bytes_fit(read(forged.seal())).notes)


@pytest.mark.parametrize("method", METHODS)
def test_a_quarter_of_the_bytes_is_wrong(method, honest, tmp_path):
    forged = Forged(honest, tmp_path / "run", None)
    for record in forged.records:
        if record["method"] == method:
            record["stored_bytes"] //= 4
            record["r_bytes"] = record["stored_bytes"] / record["full_bytes"]
            record["decode_bytes_peak"] = max(record["decode_bytes_peak"], record["stored_bytes"])
    assert bytes_fit(read(forged.seal())).verdict is Verdict.WRONG


def test_bytes_in_16_bits_that_are_the_runs_own_are_wrong(honest, tmp_path):
    forged = Forged(honest, tmp_path / "run", None)
    for record in forged.records:
        if record["method"] == "fp8_head":
            assert record["r_bytes_16"] > 1.5 * record["r_bytes"]  # a float32 run
            record["r_bytes_16"] = record["r_bytes"]
    assert bytes_fit(read(forged.seal())).verdict is Verdict.WRONG


@pytest.mark.parametrize("change", [-60, 60])
def test_a_histogram_that_shows_other_numbers_of_tokens_than_a_layer_kept_is_wrong(change, honest, tmp_path):
    forged = Forged(honest, tmp_path / "run", None)
    for record in forged.records:
        if record["method"] == "key_rerotation":
            record["kept_per_layer"] = [kept + change for kept in record["kept_per_layer"]]
            record["r1"] += change / record["prompt_tokens"]
    checked = bytes_fit(read(forged.seal()))
    assert any("its histogram shows about" in note for note in checked.notes)


def test_layers_that_kept_less_than_their_budget_are_wrong(honest, tmp_path):
    forged = Forged(honest, tmp_path / "run", None)
    for record in forged.records:
        if record["method"] == "key_rerotation":
            record["kept_per_layer"] = [kept - 20 for kept in record["kept_per_layer"]]
    checked = bytes_fit(read(forged.seal()))
    assert any("but were to keep" in note for note in checked.notes)


@pytest.mark.parametrize(
    ("method", "fills"),
    [
        ("snapkv", True),
        ("adakv", True),
        ("kvzip", True),
        ("kvzip_paper", False),  # scores equal to its threshold are dropped
        ("pyramidkv", False),
        ("rkv", False),
        ("full", False),
    ],
)
def test_a_method_says_whether_its_layers_keep_all_of_their_budget(method, fills):
    (setting,) = build_settings(configured([f"method={method}"]).method, 0.5, None)
    assert setting.method.fills_budget == fills


def test_budgets_of_heads_of_a_plug_in_may_leave_some_of_the_budget():
    assert not Eviction(scoring=KNorm(), heads=Thrifty()).fills_budget


class Thrifty(HeadBudgets):
    def counts(self, ranked, tokens, window, layer):
        return (tokens - window) // 2
