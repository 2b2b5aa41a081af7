"""A run split by samples gives the records and the report of one in one piece."""

import pytest

from kvbench.errors import UserError
from kvbench.evaluation.settings import build_settings
from kvbench.records import load
from kvbench.records.store import Store, records_name
from tests.support.config import method_configs
from tests.support.runs import arguments, compose, outcomes, reported


@pytest.mark.heavy
def test_shards_make_the_records_of_one_process_and_the_last_reports(undisturbed, tiny_folder, tmp_path):
    for shard in (2, 0, 1):
        folder = reported(*arguments(tiny_folder, tmp_path, "shards=3", f"shard={shard}"))
        assert (folder / "table.md").exists() == (shard == 1)
        assert len(load(folder)["sample"].unique()) == {2: 1, 0: 2, 1: 3}[shard]
    assert folder.name == undisturbed.name
    assert {path.name for path in folder.glob("records*")} == {records_name(f"{i}-of-3") for i in range(3)}
    assert outcomes(folder) == outcomes(undisturbed)


@pytest.mark.heavy
def test_another_number_of_shards_goes_on_from_what_is_there(undisturbed, tiny_folder, tmp_path):
    reported(*arguments(tiny_folder, tmp_path, "shards=3", "shard=1"))
    whole = reported(*arguments(tiny_folder, tmp_path))
    assert len(load(whole)) == 27 and outcomes(whole) == outcomes(undisturbed)
    assert (whole / "table.md").exists()


def test_two_shards_write_side_by_side_but_no_shard_twice(tmp_path):
    with Store(tmp_path, "0-of-2"), Store(tmp_path, "1-of-2"):  # noqa: SIM117
        with pytest.raises(UserError, match="another kvbench is writing"):
            Store(tmp_path, "0-of-2")


@pytest.mark.parametrize("shard, shards", [(2, 2), (-1, 2), (0, 0), ("x", 2), (0, True)])
def test_a_shard_that_does_not_exist_is_refused(shard, shards):
    with pytest.raises(UserError, match="shard"):
        compose().changed(shard=shard, shards=shards)


def test_a_method_may_bring_its_own_ratios_or_budgets():
    configs = method_configs("full", "snapkv", "h2o", "streaming_llm")
    configs["snapkv"]["ratio"] = [0.3, 0.1]
    configs["h2o"]["budget"] = 64
    labels = [setting.label for setting in build_settings(configs, 0.5, None)]
    assert labels == ["full", "snapkv 0.3", "snapkv 0.1", "h2o 64", "streaming_llm 0.5"]
    same = build_settings(method_configs("snapkv"), 0.3, None)[0]
    assert same.key == build_settings(configs, 0.5, None)[1].key
    configs["full"]["ratio"] = 0.5
    with pytest.raises(UserError, match="takes neither ratio nor budget"):
        build_settings(configs, 0.5, None)


def test_a_sweep_of_the_command_can_name_a_methods_own_ratio():
    config = compose("method=snapkv", "+method.snapkv.ratio=0.3")
    assert [s.label for s in build_settings(config.method, 0.5, None)] == ["snapkv 0.3"]
