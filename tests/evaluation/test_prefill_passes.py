"""memory=stream: the same tokens from one full layer and the compressed rest; memory=shared beside it."""

from dataclasses import dataclass, field

import pytest
import torch
from torch.multiprocessing.reductions import StorageWeakRef

from kvbench.benchmarks.base import Sample
from kvbench.errors import UserError
from kvbench.evaluation.decode import generate
from kvbench.evaluation.evaluate import evaluate
from kvbench.evaluation.prefill_passes import SharedPass, StreamedPass
from kvbench.evaluation.record import Run
from kvbench.evaluation.settings import Setting
from kvbench.methods import (
    H2O,
    ColumnSums,
    Eviction,
    FullKV,
    Pyramid,
    PyramidInfer,
    RandomLayers,
    SimLayerKV,
    StreamingLLM,
    WindowAttention,
)
from kvbench.models import ModelSpec
from kvbench.prefill import FullPrefill
from kvbench.records.store import Store
from kvbench.runner.request import check_memory
from tests.support.tiny import LAYOUTS, prompt, tiny_model

SNAPKV = Eviction(scoring=WindowAttention(window=8))
METHODS = {
    "full": FullKV(),
    "snapkv": SNAPKV,
    "unfolded": Eviction(scoring=WindowAttention(window=8), granularity="query_head"),
    "pyramidkv": Eviction(allocation=Pyramid(beta=5), scoring=WindowAttention(window=8)),
    "h2o": H2O(scoring=ColumnSums(recent=8), decode="update"),
    "streaming_llm": StreamingLLM(decode="evict", rope="rolling"),
    "pyramidinfer": PyramidInfer(min_ctx=6, exceed_length=4),
}


def passes(model, ids, method, budget):
    """The pass of either mode over ids for one method."""
    plan = method.plan(len(ids), model.config.num_hidden_layers, budget)
    return SharedPass(model, ids, plan, method.needs), StreamedPass(model, ids, plan)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", METHODS)
def test_both_modes_give_the_same_caches_and_tokens(name, layout):
    model, ids, budget, method = tiny_model(layout=layout, num_layers=4), prompt(90), 40, METHODS[name]
    budget = 90 if name == "full" else budget
    shared, streamed = (source.compress(method, budget) for source in passes(model, ids, method, budget))
    assert torch.equal(shared.logits, streamed.logits)
    assert shared.full_bytes == streamed.full_bytes == 4 * 2 * LAYOUTS[layout][1] * 90 * 8 * 4
    for one, other in zip(shared.caches, streamed.caches, strict=True):
        assert one.kept == other.kept and one.nbytes == other.nbytes
        assert all(torch.equal(a, b) for a, b in zip(one.tensors(), other.tensors(), strict=True))
    one, other = (generate(model, x.caches, x.logits, 12, frozenset()).tokens for x in (shared, streamed))
    assert one == other and len(set(one)) > 3


def test_the_streams_peak_is_one_full_layer_and_the_compressed_rest():
    model, n, budget = tiny_model(num_layers=5), 200, 30
    token = 2 * 2 * 8 * 4  # K and V, two KV heads of eight float32
    shared, streamed = (source.compress(SNAPKV, budget) for source in passes(model, prompt(n), SNAPKV, budget))
    assert streamed.peak_bytes == (n + 5 * budget) * token  # the last layer is the one still full
    assert shared.peak_bytes == (5 * n + 5 * budget) * token
    assert len(streamed.live) == 0 and len(shared.live) == 10


def test_the_streams_peak_is_at_the_layer_where_it_is_largest():
    model, n, budget, m = tiny_model(num_layers=5), 200, 60, 5
    token = 2 * 2 * 8 * 4
    pyramid = METHODS["pyramidkv"]
    _, streamed = passes(model, prompt(n), pyramid, budget)
    tokens = pyramid.allocation.tokens(budget, n, 8, m)
    assert streamed.compress(pyramid, budget).peak_bytes == token * max(n + sum(tokens[: i + 1]) for i in range(m))
    infer = METHODS["pyramidinfer"]
    _, streamed = passes(model, prompt(n), infer, budget)
    lengths = infer.plan(n, m, budget).lengths(n)
    # what entered a layer is what its cache keeps: nothing is held twice
    assert streamed.compress(infer, budget).peak_bytes == token * sum(lengths)


def test_full_kv_needs_no_second_copy_in_either_mode():
    model, n = tiny_model(), 50
    for source in passes(model, prompt(n), FullKV(), n):
        outcome = source.compress(FullKV(), n)
        assert outcome.peak_bytes == outcome.full_bytes


def test_tokens_made_while_decoding_count_towards_the_peak():
    model, n, budget = tiny_model(), 40, 20
    _, streamed = passes(model, prompt(n), SNAPKV, budget)
    outcome = streamed.compress(SNAPKV, budget)
    before = outcome.count(outcome.caches, 0)
    answer = generate(model, outcome.caches, outcome.logits, 130, frozenset())
    after = outcome.count(outcome.caches, answer.decode_bytes.peak)
    assert before == outcome.peak_bytes < after == sum(cache.nbytes for cache in outcome.caches)


class Watching(Eviction):
    """Notes, whenever a layer arrives, how many full K and V of earlier layers still have their memory."""

    def compress_layer(self, layer, index, num_layers, budget):
        self.alive.append(sum(not torch.UntypedStorage._expired(reference) for reference in self.held))
        self.held += [x.untyped_storage()._weak_ref() for x in (layer.keys, layer.values)]
        return super().compress_layer(layer, index, num_layers, budget)


def test_a_layer_is_freed_before_the_next_one_is_read():
    method = Watching(scoring=WindowAttention(window=8))
    model = tiny_model(num_layers=4)
    shared, streamed = passes(model, prompt(60), method, 20)
    method.alive, method.held = [], []
    streamed.compress(method, 20)
    assert method.alive == [0, 0, 0, 0]
    method.alive, method.held = [], []
    shared.compress(method, 20)
    assert method.alive == [0, 2, 4, 6]


class Together(Eviction):
    """A method whose layers depend on each other."""

    layerwise = False

    def compress(self, state, budget):
        return super().compress(state, budget)[::-1]


def test_stream_takes_one_setting_of_a_method_without_cross_layer_choices():
    one = Setting("snapkv", SNAPKV, "{}", ratio=0.2)
    two = Setting("snapkv", SNAPKV, "{}", ratio=0.4)
    check_memory("shared", [one, two])
    check_memory("stream", [one])
    with pytest.raises(UserError, match="one setting at a time, not 2"):
        check_memory("stream", [one, two])
    with pytest.raises(UserError, match="'together', whose layers are compressed together"):
        check_memory("stream", [Setting("together", Together(), "{}", ratio=0.2)])


@dataclass
class Words:
    """A benchmark of nothing but its name and a score."""

    name: str = "words"
    metrics: tuple = ("length",)
    settings: list = field(default_factory=list)

    def scores(self, sample, prediction):
        return {"length": float(len(prediction))}


@dataclass
class Letters:
    """A tokenizer's face for tiny models."""

    model: object
    spec: ModelSpec
    stop_tokens: frozenset = frozenset()
    growth: None = None

    def render(self, text, chat, prefix, history):
        return text

    def tokenise(self, text, chat):
        return {"input_ids": prompt(len(text)).tolist()}

    def decode(self, tokens):
        return " ".join(map(str, tokens))


def records(tmp_path, memory, settings):
    model = tiny_model(num_layers=4)
    loaded = Letters(model, ModelSpec(name="tiny", max_length=400, embedded="none"))
    run = Run("run", "identity", loaded, Words(), settings, memory)
    sample = Sample(id="a", prompt="x" * 100, answers=("y",), max_new_tokens=20, meta={})
    with Store(tmp_path / memory) as store:
        return {record["setting"]: record for record in evaluate(run, [sample], store)}


def test_records_of_both_modes_differ_in_memory_and_time_only(tmp_path):
    settings = [
        Setting("full", METHODS["full"], '{"f": 1}'),
        Setting("snapkv", METHODS["snapkv"], '{"s": 1}', ratio=0.3),
        Setting("pyramidinfer", METHODS["pyramidinfer"], '{"p": 1}', ratio=0.5),
    ]
    shared = records(tmp_path, "shared", settings)
    assert list(shared) == ["full", "snapkv 0.3", "pyramidinfer 0.5"]
    differ = {"memory", "peak_cache_bytes", "r_peak", "decode_batch"}
    for setting in settings:
        record = records(tmp_path / setting.name, "stream", [setting])[setting.label]
        same = {key for key in record if not key.endswith("seconds") and key not in differ}
        assert {key: record[key] for key in same} == {key: shared[setting.label][key] for key in same}
        assert record["memory"] == "stream" and record["peak_device_bytes"] is None
        assert record["peak_cache_bytes"] <= shared[setting.label]["peak_cache_bytes"]
    infer = shared["pyramidinfer 0.5"]
    assert infer["full_cache_tokens"] == 0 and infer["compress_at"] == "in_prefill"
    assert infer["full_bytes"] == shared["full"]["full_bytes"] and infer["prompt_tokens"] == 100
    assert infer["r"] == pytest.approx(0.5, abs=0.01) and infer["r_bytes"] == pytest.approx(infer["r"])


def test_settings_share_a_prefill_unless_their_plans_differ(tmp_path, monkeypatch):
    made = []

    class Counted(SharedPass):
        def __init__(self, model, ids, plan, *others):
            made.append(plan)
            super().__init__(model, ids, plan, *others)

    monkeypatch.setattr("kvbench.evaluation.prefill_passes.SharedPass", Counted)
    infer = METHODS["pyramidinfer"]
    records(
        tmp_path,
        "shared",
        [
            Setting("full", METHODS["full"], '{"f": 1}'),
            Setting("infer", infer, '{"i": 1}', ratio=0.5),
            Setting("snapkv", METHODS["snapkv"], '{"s": 1}', ratio=0.3),
            Setting("plain", PyramidInfer(min_ctx=6, decode="none"), '{"n": 1}', ratio=0.5),
            Setting("infer", infer, '{"i": 1}', ratio=0.6),
        ],
    )
    assert made == [FullPrefill(), infer.plan(100, 4, 50), infer.plan(100, 4, 60)]


def test_a_ratio_that_no_pruning_reaches_is_floored_in_the_record_and_stops_nothing(tmp_path):
    infer = PyramidInfer(schedule="cosine", recent_ratio=0.2, min_ctx=6)
    floor = infer.floor(100, 4)
    settings = [Setting("infer", infer, '{"i": 1}', ratio=ratio) for ratio in (0.1, 0.9)]
    low, high = records(tmp_path, "shared", settings).values()
    assert low["floored"] and low["r"] == pytest.approx(floor / 100, abs=0.01) and low["r"] > 0.5
    assert not high["floored"] and high["r"] == pytest.approx(0.9, abs=0.02)


@pytest.mark.parametrize(
    "method, floor",
    [
        (SimLayerKV(delta=None, sinks=4, window=16), 20),
        (SimLayerKV("decode", None, sinks=4, window=16), 19),
        (RandomLayers(0, 0.5, sinks=4, window=16), 60),
    ],
)
def test_trimming_all_layers_it_may_is_a_floor_too(tmp_path, method, floor):
    (record,) = records(tmp_path, "shared", [Setting("trimmed", method, '{"t": 1}', ratio=0.1)]).values()
    assert method.floor(100, 4) == floor
    assert record["floored"] and record["r"] == pytest.approx(floor / 100)
    settings = [Setting("trimmed", method, '{"t": 1}', budget=floor)]
    (exact,) = records(tmp_path / "exact", "shared", settings).values()
    assert not exact["floored"] and exact["kept_per_layer"] == record["kept_per_layer"]


def test_the_prompts_keys_and_values_are_counted_while_settings_decode_and_held_by_none_of_them():
    """FullKV's caches have them; once they are packed, the prompt's memory is free, and counted as before."""
    model = tiny_model()
    shared = SharedPass(model, prompt(90), FullPrefill(), SNAPKV.needs)
    full, snapkv = shared.compress(FullKV(), 90), shared.compress(SNAPKV, 20)
    (whole,) = {layer.keys.nbytes + layer.values.nbytes for layer in shared.state.layers}
    freed = [StorageWeakRef(layer.keys.untyped_storage()) for layer in shared.state.layers]
    kept = snapkv.count(snapkv.caches, 0)
    del shared
    assert not any(reference.expired() for reference in freed), "FullKV's caches lie in them"
    counts = [full.count(full.caches, 0), snapkv.count(snapkv.caches, 0)]
    assert counts == [whole * len(freed), kept]
    generate(model, full.caches, full.logits, 3, frozenset())
    assert all(reference.expired() for reference in freed)
    assert full.count(full.caches, 0) > 2 * whole * len(freed)
