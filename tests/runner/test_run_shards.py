"""A run split by samples gives the records and the report of one in one piece."""

import json
from glob import glob
from itertools import chain

import pytest

from kvbench.benchmarks import Sample
from kvbench.errors import UserError
from kvbench.evaluation.settings import build_settings
from kvbench.records import load
from kvbench.records.store import Store, read_records, record_files, records_name
from kvbench.runner.shards import Shard, first_of_each_task, warn_of_lengths
from tests.support.config import method_configs
from tests.support.runs import arguments, compose, outcomes, reported, run


@pytest.mark.heavy
def test_shards_make_the_records_of_one_process_and_the_last_reports(undisturbed, tiny_folder, tmp_path, capsys):
    for shard in (2, 0, 1):
        folder = reported(*arguments(tiny_folder, tmp_path, "shards=3", f"shard={shard}"))
        assert (folder / "table.md").exists() == (shard == 1)
        assert len(load(folder)["sample"].unique()) == {2: 1, 0: 2, 1: 3}[shard]
    assert folder.name == undisturbed.name
    assert {path.name for path in folder.glob("records*")} == {records_name(f"{i}-of-3") for i in range(3)}
    assert outcomes(folder) == outcomes(undisturbed)
    (named,) = (line.split()[1] for line in capsys.readouterr().out.splitlines() if line.startswith("records "))
    assert {str(path) for path in folder.glob("records*")} == {*glob(named)}  # there is no records.jsonl


def samples_of(tasks: dict[str, int]) -> list[Sample]:
    return [Sample(f"{task}{i}", "p", (), 1, meta={"task": task}) for task, n in tasks.items() for i in range(n)]


@pytest.mark.parametrize("count", [1, 2, 3, 5])
@pytest.mark.parametrize("tasks", [{"a": 7}, {"a": 4, "b": 4, "c": 4, "d": 4}, {"a": 9, "b": 1, "c": 4}])
def test_a_sample_is_in_one_shard_whatever_the_limit_and_shards_are_about_equal(tasks, count):
    """Processes with other limits write to the same folder at the same time."""
    every = samples_of(tasks)
    whole = [{sample.id for sample in Shard(i, count).samples(every, "visible")} for i in range(count)]
    assert sum(map(len, whole)) == len(every) == len(set().union(*whole))
    for limit in (1, 2, 3, 4, None):
        limited = [[sample.id for sample in Shard(i, count).samples(every, "visible", limit)] for i in range(count)]
        assert all({*part} <= shard for part, shard in zip(limited, whole, strict=True))
        assert sorted(chain(*limited)) == sorted(sample.id for sample in first_of_each_task(every, limit))
        for chosen in (every, [sample for sample in every if sample.id.startswith("a")]):
            sizes = [sum(sample.id in part for sample in chosen) for part in limited]
            assert max(sizes) - min(sizes) <= (1 if len(tasks) == 1 or chosen is not every else 2)


def test_lengths_of_which_a_limit_takes_no_sample_are_named(capsys):
    every = [
        Sample(f"{task}{length}-{i}", "p", (), 1, meta={"task": task, "length": length})
        for length in (1024, 2048, 4096)
        for task in "ab"
        for i in range(2)
    ]

    def warn_of(lengths, limit):
        warn_of_lengths(lengths, every, first_of_each_task(every, limit), limit)

    warn_of([1024, 2048, 4096, 8192], 3)  # no sample of 8,192 was made anyway
    assert "limit=3 takes the first samples of every task, and none of these has the length 4096: " in (
        capsys.readouterr().err
    )
    warn_of([1024, 2048, 4096], 2)
    assert "the length 2048 or 4096: run it alone (benchmark.lengths=2048)" in capsys.readouterr().err
    for lengths, limit in (([1024, 2048, 4096], 5), ([1024, 2048, 4096], None), ([], 1)):
        warn_of(lengths, limit)
    assert capsys.readouterr().err == ""


@pytest.mark.heavy
def test_shards_with_different_limits_have_no_record_in_common(tiny_folder, tmp_path):
    """In folders of their own, as at the same time neither sees the other's records."""
    rows = [{"context": f"{task} {i}", "answers": ["x"], "task": task} for task in "ab" for i in range(3)]
    (tmp_path / "rows.jsonl").write_text("".join(f"{json.dumps(row)}\n" for row in rows))
    model = (f"model.path={tiny_folder}", "model.shape=null", "model.max_length=4096")
    own = ("benchmark=jsonl", f"benchmark.path={tmp_path / 'rows.jsonl'}", "benchmark.max_new_tokens=1", "method=full")
    made = []
    for shard, limit in ((0, 2), (1, 1)):
        part = ("shards=2", f"shard={shard}", f"limit={limit}", f"output_dir={tmp_path / str(shard)}")
        (path,) = record_files(run(*model, *own, *part))
        made.append({record["sample"] for record in read_records(path).records})
    assert made == [{"1", "5"}, {"4"}]


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
