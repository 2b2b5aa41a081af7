"""benchmark=speed: each setting by itself, in turns, told as medians and bytes. Nothing here is timed."""

import json
import weakref
from dataclasses import dataclass, replace

import numpy as np
import pandas as pd
import pytest
import torch

from kvbench.benchmarks import Speed
from kvbench.cache.batch import BatchLayer, StackedLayer, joined
from kvbench.cache.reserve_ratio import Kept
from kvbench.errors import UserError
from kvbench.evaluation.decode import generate
from kvbench.evaluation.passes import SharedPass
from kvbench.evaluation.settings import Setting
from kvbench.evaluation.speed import rounds
from kvbench.evaluation.speed.largest_batch import MemoryLimit, largest
from kvbench.evaluation.speed.measure import Footprint, Measurement, measure
from kvbench.evaluation.speed.record import spread
from kvbench.figures.speed import repetitions, speed_figure
from kvbench.methods import FullKV
from kvbench.models import ModelSpec
from kvbench.models import load as load_model
from kvbench.papers.comparison import compare_speed
from kvbench.papers.experiment import Experiment, load
from kvbench.prefill import FullPrefill
from kvbench.records import load as load_records
from kvbench.run import outputs
from kvbench.run import run as main
from kvbench.tables.speed_table import speed_table, speeds
from tests.support.config import method
from tests.support.runs import compose
from tests.support.tiny import prompt, tiny_model

TINY = [
    "benchmark=speed",
    "model=llama3-8b-random",
    "model.random.vocab_size=49152",
    "model.random.hidden_size=32",
    "model.random.intermediate_size=48",
    "model.random.num_hidden_layers=2",
    "model.random.num_attention_heads=4",
    "model.random.num_key_value_heads=2",
    "model.random.head_dim=32",
    "method=[full,snapkv,kivi]",
    "ratio=0.4",
    "benchmark.lengths=[96,128]",
    "benchmark.batches=[1,3]",
    "benchmark.new_tokens=6",
    "benchmark.repeats=2",
]


def run(tmp_path, *more):
    return main.run(compose(*TINY, f"output_dir={tmp_path}", *more))


def setting(name: str, budget: int | None = None) -> Setting:
    chosen = method(name)
    return Setting(name, chosen, name, budget=budget if chosen.takes_budget else None)


@pytest.fixture(scope="module")
def model():
    return tiny_model(head_dim=32, num_layers=4)


@pytest.fixture(scope="module", autouse=True)
def loaded_once():
    """Each model is made once for all runs."""
    made = {}

    def load_once(spec: ModelSpec):
        key = repr(spec)
        if key not in made:
            made[key] = load_model(spec)
        return made[key]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(main, "load", load_once)
        yield


@pytest.fixture(scope="module")
def ran(tmp_path_factory):
    return run(tmp_path_factory.mktemp("speed"))


# --- one turn


BATCHED = ["full", "snapkv", "pyramidkv_paper", "kivi", "minicache", "simlayerkv_decode", "spindle", "pyramidinfer"]


@pytest.mark.parametrize("name", BATCHED)
def test_every_sequence_of_a_batch_has_the_tokens_of_one_by_itself(name, model):
    ids, chosen = prompt(120), setting(name, 60)
    batch = measure(model, ids, chosen, 3, 12)
    source = SharedPass(model, ids, chosen.method.plan(120, 4, chosen.budget_at(120, 4)), chosen.method.needs)
    compressed = source.compress(chosen.method, chosen.budget_at(120, 4))
    alone = generate(model, compressed.caches, compressed.logits, 12, frozenset()).tokens
    assert [list(tokens) for tokens in batch.tokens] == [alone] * 3
    assert [list(tokens) for tokens in measure(model, ids, chosen, 1, 12).tokens] == [alone]


def test_a_batch_of_dense_caches_attends_as_its_rows_do(model):
    ids = prompt(90)
    state = SharedPass(model, ids, FullPrefill(), FullKV().needs).state
    rows = [[FullKV().compress(state, 90)[1] for _ in range(3)] for _ in range(2)]
    stacked, separate = joined(rows[0]), BatchLayer(rows[1])
    assert isinstance(stacked, StackedLayer)
    keys, values, query = torch.randn(3, 2, 1, 32), torch.randn(3, 2, 1, 32), torch.randn(3, 6, 1, 32)
    for layer in (stacked, separate):
        layer.update(keys, values)
    torch.testing.assert_close(stacked.attend(query, 0.2), separate.attend(query, 0.2))
    assert stacked.get_seq_length() == separate.get_seq_length() == 91


def test_caches_of_two_shapes_and_of_no_rectangle_are_not_stacked(model):
    state = SharedPass(model, prompt(90), FullPrefill(), method("snapkv").needs).state
    one, other = (method("snapkv").compress(state, budget)[0] for budget in (40, 50))
    assert isinstance(joined([one, other]), BatchLayer)
    kivi = method("kivi").compress(state, 40)[0]
    assert isinstance(joined([kivi, kivi]), BatchLayer)
    assert joined([kivi]) is kivi


def test_bytes_are_those_of_the_caches(model):
    full = measure(model, prompt(100), setting("full"), 3, 6).footprint
    layer = 2 * 2 * 100 * 32 * 4  # K and V, KV heads, tokens, head_dim, float32
    assert full.full == full.prefilled == full.kept == full.peak == 4 * layer
    assert full.decoded == 4 * layer * 164 // 100  # one block of 64 more tokens
    snap = measure(model, prompt(100), setting("snapkv", 50), 3, 6).footprint
    assert snap.prefilled == snap.kept == 2 * layer
    assert snap.peak == 2 * layer + layer  # the last layer, uncompressed, beside all compressed ones
    assert snap.peak_of(1) == max(snap.peak, snap.decoded)
    assert replace(snap, decoded=0).peak_of(5) == 4 * 2 * layer + 3 * layer
    assert snap.peak_of(1000) == 1000 * snap.decoded  # decoded tokens outgrow one prompt's peak
    assert measure(model, prompt(100), setting("minicache"), 2, 6).memory == "shared"


def test_a_cache_that_waits_for_the_first_decoded_token_is_compressed_before_others_come(model):
    chosen = setting("simlayerkv_decode")
    chosen.method.delta, chosen.method.window = 0.0, 20  # every layer is lazy
    turn = measure(model, prompt(100), chosen, 3, 8)
    assert turn.decode_steps == 6 and {len(tokens) for tokens in turn.tokens} == {8}
    assert [layer.r1 for layer in turn.layers] == [(4 + 19) / 100] * 4
    assert turn.footprint.kept == turn.footprint.full * 23 // 100
    assert turn.footprint.prefilled < turn.footprint.full
    assert turn.stacked_layers == 4


@dataclass
class Watched(FullKV):
    """FullKV that knows whether caches of earlier turns are alive when it starts."""

    def __post_init__(self):
        super().__post_init__()
        self.made, self.alive = [], []

    def compress_layer(self, layer, index, num_layers, budget):
        if index == 0:
            self.alive.append(sum(ref() is not None for ref in EVERY))
        cache = super().compress_layer(layer, index, num_layers, budget)
        EVERY.append(weakref.ref(cache.k.buffer.untyped_storage()))
        EVERY.append(weakref.ref(cache))
        return cache


EVERY: list[weakref.ref] = []


def test_no_cache_of_an_earlier_turn_is_alive_in_the_next(model):
    EVERY.clear()
    watched = [Watched(), Watched()]
    with rounds.little_to_collect():
        for number in range(6):
            chosen = watched[number % 2]
            measure(model, prompt(60), Setting("w", chosen, "w"), 1 + number % 3, 5)
    assert [each.alive for each in watched] == [[0, 0, 0], [0, 0, 0]]
    assert len(EVERY) == 6 * 4 * 2


# --- rounds


def turn(decode: float, prefill: float = 2.0) -> Measurement:
    kept = Kept.tokens(10, 10, 10, 2)
    return Measurement(
        prefill, 0.5, None, decode, 5, ((1, 2),), (kept,), Footprint(100, 100, 100, 120, 110), "stream", 0, None
    )


@pytest.fixture
def faked(monkeypatch):
    """Turns that take the seconds they are told: a list of (setting, batch, tokens), and what decoding takes."""
    seen, seconds = [], {}

    def attempt(model, ids, chosen, batch, new_tokens, beside=None):
        seen.append((chosen.label, batch, new_tokens))
        times = seconds.get(chosen.label)
        return turn(times.pop(0) if times else 1.0)

    monkeypatch.setattr(rounds, "attempt", attempt)
    monkeypatch.setattr(outputs, "save", lambda *_: [])  # takes a second
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
    assert {(batch, tokens) for _, batch, tokens in seen[3:6]} == {(2, 8)}
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


def test_a_setting_that_runs_out_of_memory_is_told_without_times_and_the_others_go_on(monkeypatch, tmp_path):
    def attempt(model, ids, chosen, batch, new_tokens, beside=None):
        return None if chosen.name == "full" and batch > 1 else turn(1.0)

    monkeypatch.setattr(rounds, "attempt", attempt)
    folder = run(tmp_path, "benchmark.lengths=96")
    records = load_records(folder).set_index(["setting", "batch"])
    assert not records.loc[("full", 3), "fits"] and pd.isna(records.loc[("full", 3), "decode_tokens_per_s"])
    assert records.loc[("full", 1), "fits"] and records.loc[("kivi", 3), "decode_tokens_per_s"] == 15
    text = (folder / "table.md").read_text()
    assert "| full | 96 | 6 | 3 | – | – | – | – | – | – | – | – | 1.000 |" in text
    assert "the batch does not fit" in text


def test_where_not_one_sequence_fits_nothing_is_known(monkeypatch, tmp_path):
    monkeypatch.setattr(rounds, "attempt", lambda *_: None)
    folder = run(tmp_path, "benchmark.lengths=96")
    records = load_records(folder)
    assert len(records) == 6 and not records["fits"].any() and (records["largest_batch"] == 0).all()
    assert (folder / "table.md").exists() and not (folder / "speed.png").exists()


# --- the largest batch


@pytest.mark.parametrize("most", [0, 1, 2, 3, 7, 8, 9, 100, 1023])
def test_the_largest_batch_is_found_in_few_tries(most):
    tries = []
    assert largest(lambda batch: tries.append(batch) or batch <= most) == most
    assert len(tries) == len(set(tries)) <= 2 * (most + 1).bit_length() + 1


def test_a_batch_fits_as_long_as_weights_and_caches_do(model):
    one = Footprint(full=1000, prefilled=400, kept=400, decoded=500, peak=900)
    room = MemoryLimit(model, None)
    room.bytes = room.weights + 7 * 500 + 499
    assert room.how == "counted"
    assert room.largest(prompt(20), setting("full"), 4, one) == 7
    room.bytes = room.weights + 899  # one prompt's own peak does not fit
    assert room.largest(prompt(20), setting("full"), 4, one) == 0
    assert MemoryLimit(model, 0.5).bytes == 2**29
    assert room.weights == sum(parameter.numel() * 4 for parameter in model.parameters())


def test_on_a_gpu_a_batch_is_tried_and_what_cannot_fit_is_not(model, monkeypatch):
    from kvbench.evaluation.speed import largest_batch as module

    tried = []
    room = MemoryLimit(model, None)
    room.gpus, room.bytes = {torch.device("cuda")}, room.weights + 100 * 500
    monkeypatch.setattr(module, "attempt", lambda *a: tried.append(a[3]) or (turn(1.0) if a[3] <= 21 else None))
    one = Footprint(full=1000, prefilled=400, kept=400, decoded=500, peak=900)
    assert room.largest(prompt(20), setting("full"), 4, one) == 21
    assert max(tried) <= 100 and 22 in tried


def test_the_largest_batch_can_be_the_one_to_measure(tmp_path):
    weights = sum(p.nbytes for p in load_model(spec()).model.parameters())
    gib = (weights + 500_000) / 2**30
    folder = run(tmp_path, "benchmark.lengths=96", "benchmark.batches=largest", f"benchmark.memory_gib={gib:.9f}")
    records = load_records(folder).set_index("method")
    assert (records["sequences"] == records["largest_batch"]).all()
    for _, record in records.iterrows():
        assert record["peak_cache_bytes"] <= 500_000 < record["peak_cache_bytes"] * (1 + 1 / record["sequences"])
    assert records.loc["kivi", "largest_batch"] > records.loc["full", "largest_batch"] > 1
    assert f"largest, {records.loc['full', 'largest_batch']}" in (folder / "table.md").read_text()


def test_what_does_not_fit_into_the_memory_allowed_is_not_run(tmp_path):
    folder = run(tmp_path, "benchmark.lengths=96", "benchmark.memory_gib=0.001")
    records = load_records(folder)
    assert not records["fits"].any() and (records["largest_batch"] == 0).all()
    assert (records["r_bytes"] > 0).all()


# --- whole runs


def test_a_run_makes_a_record_per_setting_length_and_batch(ran):
    records = load_records(ran)
    assert len(records) == 3 * 2 * 2 and records["key"].is_unique
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
    for name in ("table.csv", "table.md", "speed.png", "speed.pdf"):
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


def test_the_same_command_again_measures_nothing(ran, monkeypatch):
    before = (ran / "records.jsonl").read_bytes()
    monkeypatch.setattr(rounds, "attempt", lambda *_: pytest.fail("measured again"))
    assert run(ran.parent) == ran
    assert (ran / "records.jsonl").read_bytes() == before


def test_a_killed_run_goes_on_where_it_stopped(monkeypatch, tmp_path, faked):
    seen, _ = faked
    plain, count = rounds.attempt, iter(range(1000))

    def dies(*arguments):
        if next(count) == 30:  # in the rounds of the third of four places
            raise KeyboardInterrupt
        return plain(*arguments)

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


# --- mistakes


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
        ("benchmark.haystack_dir=/nowhere", "'/nowhere' is not a folder with .txt files"),
        ("question=hidden", "question=hidden: benchmark=speed reads a text that asks nothing"),
        ("memory=stream", "memory=stream: benchmark=speed streams every method"),
        ("model.random.model_type=llamma", "model.random.model_type='llamma' is nothing that transformers knows"),
        ("model.random.hidden_size=33", "is not a multiple of the number of attention heads"),
        ("model.random.vocab_size=1000", "model.random.vocab_size=1000 is less than the 49152 tokens of"),
        ("model.random.intermediate_size=100000000000", "do not fit into the .* GiB that are free"),
        ("model.device_map=auto", "model.device_map=auto: random weights lie on one device"),
    ],
)
def test_a_mistake_is_told_in_one_line(change, told, tmp_path):
    with pytest.raises(UserError, match=told) as error:
        run(tmp_path, change)
    assert "\n" not in str(error.value)


# --- random weights


def spec(**random) -> ModelSpec:
    config = compose(*TINY)["model"]
    return ModelSpec(
        **{key: value for key, value in config.items() if key != "about"} | {"random": config["random"] | random}
    )


def test_random_weights_are_the_same_for_the_same_shape_and_need_no_hub():
    one, same, other = (load_model(each) for each in (spec(), spec(), spec(num_hidden_layers=3)))
    assert all(torch.equal(a, b) for a, b in zip(one.model.parameters(), same.model.parameters(), strict=True))
    assert one.source == same.source != other.source
    assert len(other.model.model.layers) == 3
    assert one.model.dtype == torch.float32
    assert not one.model.training


def test_the_shipped_shape_is_llama_3_8b():
    config = compose("model=llama3-8b-random")["model"]["random"]
    with torch.device("meta"):
        from transformers import AutoConfig, AutoModelForCausalLM

        model = AutoModelForCausalLM.from_config(AutoConfig.for_model(**config))
    assert sum(p.numel() for p in model.parameters()) == 8_030_261_248  # as the model's card counts them


def test_prompts_have_their_length_to_the_token_and_begin_as_the_tokenizer_does(embedded):
    benchmark = Speed([50, 90], [1], [8])
    assert [len(benchmark.ids(embedded.tokenizer, length)) for length in benchmark.lengths] == [50, 90]
    assert benchmark.longest == 98

    class WithStart:
        def __call__(self, text, add_special_tokens=True):
            ids = embedded.tokenizer(text, add_special_tokens=False)["input_ids"]
            return {"input_ids": [7, *ids] if add_special_tokens else ids}

    ids = benchmark.ids(WithStart(), 50)
    assert len(ids) == 50 and ids[0] == 7
    assert ids[1:].tolist() == benchmark.ids(embedded.tokenizer, 50)[:49].tolist()


# --- tables and figures


def frame_of(*rows: dict) -> pd.DataFrame:
    """Records as `record` makes them, as far as tables read them."""
    base = dict(
        ratio=None, budget=128, new_tokens=512, batch=1, fits=True, sequences=1, decode_steps=10, r=0.5, r_bytes=0.5,
        prefill_seconds=1.0, compress_seconds=0.1, allocation_seconds=1e-5, latency_seconds=20.0, decode_seconds=1.0,
        prefilled_bytes=53_000_000, peak_cache_bytes=60_000_000, peak_device_bytes=None, largest_batch=None, length=512,
        spread_seconds={"decode": {"min": 0.5, "max": 2.0}},
    )  # fmt: skip
    return pd.DataFrame([base | {"setting": row["method"], "decode_tokens_per_s": 10.0} | row for row in rows])


def test_speeds_are_over_fullkv_of_the_same_place():
    frame = speeds(
        frame_of(
            {"method": "snapkv", "length": 512, "decode_tokens_per_s": 30.0},
            {"method": "snapkv", "length": 1024, "decode_tokens_per_s": 8.0},
            {"method": "full", "length": 1024, "decode_tokens_per_s": 16.0},
            {"method": "full", "length": 512, "decode_tokens_per_s": 20.0},
        )
    )
    assert frame[["length", "method"]].values.tolist() == [
        *([512, "snapkv"], [512, "full"], [1024, "snapkv"], [1024, "full"])
    ]
    assert frame["over_full"].tolist() == [1.5, 1.0, 0.5, 1.0]
    assert frame["low"].tolist() == [5.0] * 4 and frame["high"].tolist() == [20.0] * 4
    table = speed_table(frame, "", [])
    header, rows = table.header, table.rows
    assert "largest" not in header and "GPU MiB" not in header
    assert rows[0][header.index("slowest – fastest")] == "5.0 – 20.0"
    narrow = speed_table(frame, "", [], wide=False)
    short, rows = narrow.header, narrow.rows
    assert {"slowest – fastest", "new"} & {*header} and not {"slowest – fastest", "new"} & {*short}
    assert {len(row) for row in rows} == {len(short)}


def test_without_fullkv_there_is_no_ratio_to_it():
    table = speed_table(speeds(frame_of({"method": "snapkv"}, {"method": "h2o"})), "", [])
    assert "× full" not in table.header


def test_bars_are_medians_of_the_repeats_of_what_fits():
    times = {"repeats_seconds": {"first_token": [3.0, 1.0, 2.0], "decode": [1.0, 2.0, 4.0]}}
    frame = repetitions(
        frame_of(
            {"method": "full", "batch": 1} | times,
            {"method": "full", "batch": "largest", "sequences": 4} | times,
            {"method": "kivi", "batch": 1} | times,
            {"method": "kivi", "batch": "largest", "fits": False},
        )
    )
    assert len(frame) == 9
    assert frame["decode_tokens_per_s"][:6].tolist() == [10.0, 5.0, 2.5, 40.0, 20.0, 10.0]
    assert frame["cache_bytes"][3] == frame["cache_bytes"][0] / 4
    figure = speed_figure(frame, "a caption")
    decoding, first, cache, peak = (axis for part in figure.subfigs for axis in part.axes)
    assert [bar.get_height() for bar in decoding.containers[0]] == [5.0, 20.0]
    assert [bar.get_height() for bar in first.containers[0]] == [2.0, 2.0]
    assert decoding.containers[1][0].get_height() == 5.0 and np.isnan(decoding.containers[1][1].get_height())
    assert cache.get_ylabel() == peak.get_ylabel() == "MiB"
    assert [label.get_text() for label in decoding.get_xticklabels()] == ["512\n× 1", "512\n× largest"]
    styles = {(bars[0].get_facecolor(), bars[0].get_hatch()) for bars in decoding.containers}
    assert len(styles) == 2 and all(r == g == b for (r, g, b, _), _ in styles)  # grey, told apart


def experiment(name: str) -> Experiment:
    return Experiment.of(load(name))


def test_published_times_stand_beside_ours_of_the_same_place():
    ours = frame_of(
        {"method": "pyramidkv_paper_h2o", "latency_seconds": 10.0},
        {"method": "pyramidkv_paper_snapkv", "latency_seconds": 9.0},
        {"method": "pyramidkv_paper", "latency_seconds": 9.5, "new_tokens": 1024},
        {"method": "pyramidkv_paper", "latency_seconds": 9.5, "length": 513},
    )
    compared, used = compare_speed(speeds(ours), experiment("pyramidkv_table7"), "llama3-8b-random")
    assert compared[["published", "ours"]].values.tolist() == [[18.47, 10.0], [18.25, 9.0], [34.69, 9.5]]
    assert compared["ours_over_first"].tolist() == [1.0, 0.9, 1.0]
    assert set(used["model"]) == {"llama3-8b"}


def test_allocation_and_selection_stand_beside_table_6():
    compared, _ = compare_speed(
        speeds(frame_of({"method": "full"}, {"method": "pyramidkv_paper"})), experiment("pyramidkv_table6"), "llama3-8b"
    )
    assert dict(zip(compared["column"], compared["published"], strict=True)) == {
        "latency_s": 18.26,
        "allocation_s": 0.000003,
        "selection_s": 0.0194,
    }
    assert compared["ours"].tolist() == [20.0, 1e-5, 0.1]


def test_memory_stands_beside_table_2_by_budget():
    ours = frame_of({"method": "pyramidkv_paper", "budget": 64}, {"method": "full", "budget": None, "r": 1.0})
    compared, _ = compare_speed(speeds(ours), experiment("pyramidkv_memory"), "llama3-8b")
    memory = compared[compared["column"] == "memory_mb"]
    assert memory[["published", "ours"]].values.tolist() == [[53, 53], [6848, 53]]
    assert set(compared.loc[compared["column"] == "kv_share", "ours"]) == {50, 100}


def test_throughput_is_compared_at_the_largest_batch_only():
    ours = frame_of(
        *({"method": name, "length": 4096, "batch": batch, "decode_tokens_per_s": speed}
          for batch in (1, "largest") for name, speed in (("full", 10.0), ("simlayerkv_paper", 15.0))),
    )  # fmt: skip
    compared, _ = compare_speed(speeds(ours), experiment("simlayerkv_throughput"), "llama3-8b")
    assert compared[["published", "ours"]].values.tolist() == [[1.44, 1.5]]


def test_spindlekvs_speed_is_compared_with_fullkv_for_each_model():
    ours = frame_of(
        {"method": "full", "budget": None, "decode_tokens_per_s": 20.0},
        {"method": "spindlekv_paper", "budget": None, "ratio": 0.4, "decode_tokens_per_s": 15.0},
    )
    compared, used = compare_speed(speeds(ours), experiment("spindlekv_table9"), "mistral-7b-v0.2")
    assert compared["published"].tolist() == [22.48, 18.47]
    assert compared["ours_over_first"].tolist() == [1.0, 0.75]
    assert set(used["model"]) == {"mistral-7b-v0.2"}


def test_a_run_of_an_experiment_leaves_the_comparison(tmp_path, faked):
    small = [each for each in TINY if each.startswith(("model", "benchmark="))]
    folder = main.run(compose(*small, "+experiment=pyramidkv_table6", "limit=1", f"output_dir={tmp_path}"))
    text = (folder / "published.md").read_text()
    assert text.startswith("PyramidKV Table 6 (llama3-8b) beside this run")
    assert "selection_s" in text and "- a cache of 128 tokens per layer and head: the paper gives no size" in text
    assert "The paper: The cache sizes of these runs are not given." in text
    assert len(pd.read_csv(folder / "published.csv")) == 3
    assert "scaled down: llama3-8b-random in place of llama3-8b" in (folder / "table.md").read_text()
