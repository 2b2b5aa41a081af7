"""The answers with which a setting of an engine is compared, whichever run, shard or order made them."""

from unittest.mock import patch

import pytest

from kvbench.engines import references
from kvbench.errors import Incomplete
from kvbench.records import load
from tests.engines.test_evaluate import command
from tests.support.fake_engine import FakeEngine
from tests.support.runs import run


def other() -> FakeEngine:
    """Another server, whose answers and probabilities differ in every place."""
    engine = FakeEngine()
    engine.shift = 1
    return engine


WHOLE = [[]]
SHARDS = [["shards=2", "shard=0"], ["shards=2", "shard=1"]]


@pytest.mark.heavy
@pytest.mark.parametrize(("before", "after"), [(SHARDS, WHOLE), (WHOLE, SHARDS)], ids=["shards first", "shards later"])
def test_the_first_setting_is_the_baseline_however_its_samples_were_divided(before, after, tiny_folder, tmp_path):
    """The second one's answers were their own baseline, at a distance of 0."""
    for engine, label, parts in ((FakeEngine(), "one", before), (other(), "two", after)):
        with engine.running() as url:
            for part in parts:
                more = [f"engine.label={label}", "engine.flags=f16", "distance=true", *part]
                folder = run(*command(tiny_folder, tmp_path, url, *more))
    rows = {name: group for name, group in load(folder).groupby("setting")}
    assert rows["two"]["baseline"].str.fullmatch("one [0-9a-f]{16}").all() and not rows["two"]["equal"].any()
    assert rows["two"]["distance"].map(lambda distance: distance["kl_at_least"] > 0).all()


@pytest.mark.heavy
def test_the_first_run_decides_not_the_name_of_its_file(tiny_folder, tmp_path):
    """records.0-of-2.jsonl is before records.jsonl, and was written later."""
    divided = SHARDS[0]
    for engine, label, part in ((FakeEngine(), "one", []), (other(), "two", divided), (other(), "three", divided)):
        with engine.running() as url:
            folder = run(*command(tiny_folder, tmp_path, url, f"engine.label={label}", "engine.flags=f16", *part))
    baselines = load(folder).dropna(subset="baseline").groupby("setting")["baseline"].first()
    assert baselines.str.partition(" ")[0].to_dict() == {"two": "one", "three": "one"}


@pytest.mark.heavy
def test_a_setting_is_not_its_own_baseline_where_the_first_one_measured_no_distances(tiny_folder, tmp_path):
    """It stood in the table with a divergence of 0, and its answers were not compared at all."""
    for engine, label, more in ((FakeEngine(), "one", []), (other(), "two", ["distance=true"])):
        with engine.running() as url:
            folder = run(*command(tiny_folder, tmp_path, url, f"engine.label={label}", "engine.flags=f16", *more))
    rows = {name: group for name, group in load(folder).groupby("setting")}
    assert rows["two"]["distance"].isna().all() and rows["two"]["baseline"].str.startswith("one ").all()


@pytest.mark.heavy
def test_the_baseline_is_the_first_setting_that_answers(tiny_folder, tmp_path):
    refuses, engines = FakeEngine(lambda number, payload: "refused" if number > 1 else "well"), (FakeEngine(), other())
    with refuses.running() as a, engines[0].running() as b, engines[1].running() as c:
        urls = [f"[{a},{b},{c}]", "engine.label=[one,two,three]", "engine.flags=f16", "distance=true"]
        with pytest.raises(Incomplete):
            run(*command(tiny_folder, tmp_path, *urls))
    rows = {name: group for name, group in load(next(tmp_path.glob("niah-*"))).groupby("setting")}
    assert {*rows} == {"two", "three"} and rows["three"]["baseline"].str.startswith("two ").all()
    assert rows["three"]["distance"].map(lambda distance: distance["kl_at_least"] > 0).all()


@pytest.mark.heavy
def test_a_server_that_changed_is_told_of_where_another_split_made_its_records(tiny_folder, tmp_path, capsys):
    for engine, more in ((FakeEngine(), [*SHARDS[0], "limit=1"]), (other(), [])):
        with engine.running() as url:
            run(*command(tiny_folder, tmp_path, url, "engine.label=one", "engine.flags=f16", *more))
    assert "one: asked again before the run goes on" in " ".join(capsys.readouterr().err.split())


@pytest.mark.heavy
def test_a_folder_is_read_once_for_any_number_of_settings(tiny_folder, tmp_path):
    """It was read for every setting, so that the time of a sweep grew with the square of its settings."""
    with FakeEngine().running() as url, patch.object(references, "read_records", wraps=references.read_records) as read:
        flags = "engine.flags=[a,b,c,d]", "engine.label=[a,b,c,d]", "engine.repeat=0"
        folder = run(*command(tiny_folder, tmp_path, url, *flags))
    assert read.call_count == 1
    assert load(folder).groupby("setting")["equal"].sum().to_dict() == {"a": 0, "b": 3, "c": 3, "d": 3}
