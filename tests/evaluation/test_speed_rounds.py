"""Rounds of a speed run in changing order: what is measured, stored, resumed and refused."""

import json

import pandas as pd
import pytest

from kvbench.errors import UserError
from kvbench.evaluation.speed import rounds
from kvbench.evaluation.speed.record import spread
from kvbench.records import load as load_records
from kvbench.records.schema import SpeedRecord
from kvbench.report.figures import style
from kvbench.runner import run as main
from tests.support.runs import compose
from tests.support.speed_runs import TINY, run, turn
from tests.support.unrendered import rendering

pytestmark = [pytest.mark.heavy, pytest.mark.usefixtures("loaded_once")]


@pytest.fixture(scope="module")
def ran(loaded_once, tmp_path_factory):
    with rendering():
        return run(tmp_path_factory.mktemp("speed"))


def stored(folder):
    """Records as they are stored, which lack what they do not have."""
    return [json.loads(line) for line in (folder / "records.jsonl").read_text().splitlines()]


@pytest.fixture
def faked(monkeypatch):
    """Turns that take the seconds they are told: a list of (setting, batch, tokens), and what decoding takes."""
    seen, seconds = [], {}

    def attempt(model, ids, chosen, batch, new_tokens, beside=None, engine="auto"):
        seen.append((chosen.label, batch, new_tokens))
        times = seconds.get(chosen.label)
        return turn(times.pop(0) if times else 1.0)

    monkeypatch.setattr(rounds, "attempt", attempt)
    monkeypatch.setattr(style, "save", lambda *_: [])  # takes a second
    return seen, seconds


def test_settings_take_turns_and_warm_rounds_are_not_counted(faked, tmp_path):
    seen, seconds = faked
    seconds["full"] = [9.0, 8.0, 4.0, 1.0, 2.0]  # a look, a warm round, three repeats
    folder = run(
        tmp_path, "benchmark.lengths=96", "benchmark.batches=2", "benchmark.repeats=3", "benchmark.new_tokens=20"
    )
    full, snap, kivi = "full", "snapkv 0.4", "kivi"
    assert [label for label, _, _ in seen] == [
        *(full, snap, kivi),  # looks
        *(full, snap, kivi),  # warm
        *(snap, kivi, full),
        *(kivi, full, snap),
        *(full, snap, kivi),
    ]
    assert {(batch, tokens) for _, batch, tokens in seen[:3]} == {(1, 20)}
    assert {(batch, tokens) for _, batch, tokens in seen[3:6]} == {(2, 12)}
    assert {(batch, tokens) for _, batch, tokens in seen[6:]} == {(2, 20)}
    record = load_records(folder).set_index("setting").loc["full"]
    assert record["repeats_seconds"]["decode"] == [4.0, 1.0, 2.0]
    assert record["places"] == [2, 1, 0]
    assert record["spread_seconds"]["decode"] == {"median": 2.0, "min": 1.0, "max": 4.0, "iqr": 1.5}
    assert record["decode_seconds"] == 2.0
    assert record["decode_tokens_per_s"] == 2 * 5 / 2.0
    assert record["first_token_seconds"] == 2.5
    assert record["latency_seconds"] == 2 * 2.5 + 2.0
    assert (record["prefilled_bytes"], record["decoded_bytes"], record["peak_cache_bytes"]) == (200, 240, 240)


def test_a_spread_is_median_ends_and_the_middle_half():
    assert spread([5.0, 1.0, 2.0, 4.0, 3.0]) == {"median": 3.0, "min": 1.0, "max": 5.0, "iqr": 2.0}
    assert spread([7.0]) == {"median": 7.0, "min": 7.0, "max": 7.0, "iqr": 0.0}


@pytest.mark.heavy
def test_a_setting_that_runs_out_of_memory_is_told_without_times_and_the_others_go_on(monkeypatch, tmp_path):
    def attempt(model, ids, chosen, batch, new_tokens, beside=None, engine="auto"):
        return None if chosen.name == "full" and batch > 1 else turn(1.0)

    monkeypatch.setattr(rounds, "attempt", attempt)
    folder = run(tmp_path, "benchmark.lengths=96")
    records = load_records(folder).set_index(["setting", "batch"])
    assert not records.loc[("full", 3), "fits"] and pd.isna(records.loc[("full", 3), "decode_tokens_per_s"])
    assert records.loc[("full", 1), "fits"] and records.loc[("kivi", 3), "decode_tokens_per_s"] == 15
    text = (folder / "table.md").read_text()
    assert "| FullKV | 96 | 6 | 3 | – | – | – | – | – | – | – | – | 1.000 |" in text
    assert "the batch does not fit" in text
    for record in stored(folder):
        assert SpeedRecord.due(record) <= record.keys()
        assert ("r_read" in SpeedRecord.due(record)) == record["fits"]


def test_where_not_one_sequence_fits_nothing_is_known(monkeypatch, tmp_path):
    monkeypatch.setattr(rounds, "attempt", lambda *_, **__: None)
    folder = run(tmp_path, "benchmark.lengths=96")
    records = load_records(folder)
    assert len(records) == 6 and not records["fits"].any() and (records["largest_batch"] == 0).all()
    assert (folder / "table.md").exists() and not (folder / "speed.png").exists()
    assert all(SpeedRecord.due(record) <= record.keys() for record in stored(folder))


def test_a_run_makes_a_record_per_setting_length_and_batch(ran):
    records = load_records(ran)
    assert len(records) == 3 * 2 * 2 and records["key"].is_unique
    for record in stored(ran):
        due = SpeedRecord.due(record)
        assert due <= record.keys()
        for name in ("target_missed", "ratio_over", "r1", "decode_bytes_read"):
            assert name in due and SpeedRecord.due({key: value for key, value in record.items() if key != name}) == due
    assert records["fits"].all() and (records["sequences"] == records["batch"]).all()
    assert (records["decode_steps"] == 5).all() and records["tokens"].map(len).eq(6).all()
    for name in ("prefill", "compress", "first_token", "decode", "latency"):
        assert (records[f"{name}_seconds"] > 0).all()
        assert records["repeats_seconds"].map(lambda repeats, name=name: len(repeats[name])).eq(2).all()
    full = records[records["method"] == "full"]
    assert (full["r_bytes"] == 1).all()
    assert (full["full_bytes"] == full["length"] * 2 * 2 * 2 * 32 * 4).all()
    assert (full["prefilled_bytes"] == full["batch"] * full["full_bytes"]).all()
    snap = records[records["method"] == "snapkv"]
    assert (snap["r_bytes"] < 0.41).all() and snap["allocation_seconds"].notna().all()
    for column in ("machine", "threads", "torch", "memory", "largest_batch", "conditions", "beside"):
        assert records[column].notna().all()
    assert records["conditions"].map(lambda each: {*each} == {"before", "after"}).all()
    # the same tokens in every batch
    assert records.groupby(["setting", "length"])["tokens"].agg(lambda each: len(set(map(tuple, each)))).eq(1).all()


def test_a_run_leaves_table_bars_and_manifest(ran):
    for name in ("table.csv", "table.md", "table.tex", "speed.png", "speed.pdf"):
        assert (ran / name).stat().st_size > 0
    frame = pd.read_csv(ran / "table.csv")
    assert list(frame["setting"][:3]) == ["full", "snapkv 0.4", "kivi"]
    assert list(frame["length"]) == [96] * 6 + [128] * 6 and list(frame["batch"][:6]) == [1] * 3 + [3] * 3
    assert (frame.loc[frame["method"] == "full", "over_full"] == 1).all()
    assert (frame["low"] <= frame["decode_tokens_per_s"] + 0.01).all()
    assert (frame["high"] >= frame["decode_tokens_per_s"] - 0.01).all()
    text = (ran / "table.md").read_text()
    assert "Medians of 2 repeats on" in text and "copies of that sequence" in text
    manifest = json.loads(next((ran / "manifests").iterdir()).read_text())
    assert manifest["status"] == "finished" and manifest["hardware"]["threads"]


@pytest.mark.heavy
def test_the_same_command_again_measures_nothing(ran, monkeypatch):
    before = (ran / "records.jsonl").read_bytes()
    monkeypatch.setattr(rounds, "attempt", lambda *_: pytest.fail("measured again"))
    assert run(ran.parent) == ran
    assert (ran / "records.jsonl").read_bytes() == before


def test_a_killed_run_goes_on_where_it_stopped(monkeypatch, tmp_path, faked):
    seen, _ = faked
    plain, count = rounds.attempt, iter(range(1000))

    def dies(*arguments, **options):
        if next(count) == 30:  # in the rounds of the third of four places
            raise KeyboardInterrupt
        return plain(*arguments, **options)

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(rounds, "attempt", dies)
        run(tmp_path)
    (folder,) = tmp_path.iterdir()
    survived = (folder / "records.jsonl").read_bytes()
    assert survived.count(b"\n") == 6
    seen.clear()
    assert run(tmp_path) == folder
    assert (folder / "records.jsonl").read_bytes().startswith(survived)
    assert len(load_records(folder)) == 12
    assert len(seen) == 3 + 2 * 3 * 3  # looks at the second length, and two places of three rounds


def test_a_setting_added_later_is_measured_by_itself_and_says_so(tmp_path, faked):
    run(tmp_path, "benchmark.lengths=96", "method=[full]")
    folder = run(tmp_path, "benchmark.lengths=96", "method=[full,kivi]")
    records = load_records(folder)
    assert records.groupby("method")["beside"].first().to_dict() == {"full": ["full"], "kivi": ["kivi"]}


@pytest.mark.parametrize(
    "change, told",
    [
        ("benchmark.batches=[0]", "item 1 of benchmark.batches=0 must be an integer of at least 1"),
        (
            "benchmark.batches=[1,largst]",
            "item 2 of benchmark.batches='largst' must be an integer of at least 1 or 'largest'",
        ),
        ("benchmark.batches=[]", r"benchmark.batches=\[\] must be a list of at least 1"),
        ("benchmark.batches=[1.5]", "item 1 of benchmark.batches=1.5 must be an integer"),
        ("benchmark.repeats=0", "benchmark.repeats=0 must be an integer of at least 1"),
        ("benchmark.warmup=-1", "benchmark.warmup=-1 must be an integer of at least 0"),
        ("benchmark.new_tokens=1", "item 1 of benchmark.new_tokens=1 must be an integer of at least 4"),
        ("benchmark.lengths=[8]", "item 1 of benchmark.lengths=8 must be an integer of at least 16"),
        ("benchmark.lengths=many", "benchmark.lengths='many' must be a list of numbers"),
        ("benchmark.lengths=[200000]", "takes 200006 tokens, but llama3-8b-random reads at most 131072"),
        ("benchmark.memory_gib=-2", "benchmark.memory_gib=-2 must be a number above 0 or null"),
        ("benchmark.largest=yes please", "benchmark.largest='yes please' must be true or false"),
        ("benchmark.haystack_dir=/nowhere", "benchmark.haystack_dir='/nowhere' is not a folder with .txt files"),
        ("distance=true", "distance=true: benchmark=speed measures no answer.s distance from FullKV"),
        ("question=hidden", "question=hidden: benchmark=speed reads a text without a question"),
        ("memory=stream", "memory=stream: benchmark=speed streams every method"),
        ("decode.batch=1", "decode.batch=1: benchmark=speed decodes one setting at a time, in as many copies"),
        ("model.random.model_type=llamma", "model.random.model_type='llamma' is unknown to transformers"),
        ("model.random.hidden_size=33", "is not a multiple of the number of attention heads"),
        ("model.random.vocab_size=1000", "model.random.vocab_size=1000 is less than the 49152 tokens of"),
        ("model.random.intermediate_size=100000000000", "do not fit into the .* GiB that are free"),
        ("model.device_map=auto", "model.device_map=auto: random weights are on one device"),
    ],
)
def test_a_mistake_is_told_in_one_line(change, told, tmp_path):
    with pytest.raises(UserError, match=told) as error:
        run(tmp_path, change)
    assert "\n" not in str(error.value)


def test_a_run_of_an_experiment_leaves_the_comparison(tmp_path, faked):
    small = [each for each in TINY if each.startswith(("model", "benchmark="))]
    folder = main.run(compose(*small, "+experiment=pyramidkv_table6", "limit=1", f"output_dir={tmp_path}"))
    text = (folder / "published.md").read_text()
    assert text.startswith("PyramidKV Table 6 (llama3-8b) beside this run")
    assert "selection_s" in text and "- a cache of 128 tokens per layer and head: the paper gives no size" in text
    assert "The paper: The cache sizes of these runs are not given." in text
    assert len(pd.read_csv(folder / "published.csv")) == 3
    assert "scaled down: llama3-8b-random in place of llama3-8b" in (folder / "table.md").read_text()
