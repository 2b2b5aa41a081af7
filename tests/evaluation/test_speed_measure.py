"""One measurement of speed: a batch has the tokens of one by one, bytes are those of its caches."""

import weakref
from dataclasses import dataclass, replace

import pytest

from kvbench.cache.batch_layer import Part
from kvbench.evaluation.decode import generate
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.evaluation.record import decode_figures
from kvbench.evaluation.recorded_steps import RecordedSteps, Recording
from kvbench.evaluation.settings import Setting
from kvbench.evaluation.speed import measure as speed
from kvbench.evaluation.speed import rounds
from kvbench.evaluation.speed.measure import measure
from kvbench.methods import DecodeCompression, Eviction, FullKV, KNorm
from kvbench.prefill import FullPrefill
from tests.support.living import Living
from tests.support.replay import Recorded
from tests.support.speed_runs import setting
from tests.support.tiny import prompt

pytestmark = pytest.mark.heavy

BATCHED = ["full", "snapkv", "pyramidkv_paper", "kivi", "minicache", "simlayerkv_decode", "spindle", "pyramidinfer"]


@pytest.mark.parametrize("name", BATCHED)
def test_every_sequence_of_a_batch_has_the_tokens_of_one_by_itself(name, model):
    ids, chosen = prompt(120), setting(name, 60)
    batch = measure(model, ids, chosen, 3, 12)
    source = SharedPass(model, ids, chosen.method.plan(120, 4, chosen.budget_at(120, 4)), chosen.method.needs)
    compressed = source.compress(chosen.method, chosen.budget_at(120, 4))
    alone = generate(model, compressed.caches, compressed.logits, 12, frozenset())
    assert alone.close_call is None, "rounding could turn a token"
    assert [list(tokens) for tokens in batch.tokens] == [alone.tokens] * 3
    assert [list(tokens) for tokens in measure(model, ids, chosen, 1, 12).tokens] == [alone.tokens]


@pytest.mark.parametrize("name", ["full", "simlayerkv_decode"])
def test_a_warm_up_compiles_a_step_and_records_one(name, model, monkeypatch):
    recorded, compiled, compiles = [], [], RecordedSteps._compile

    def capture(work):
        recorded.append(Recorded(work))
        return recorded[-1].replay

    monkeypatch.setattr(RecordedSteps, "_compile", lambda steps: compiled.append(steps) or compiles(steps))
    monkeypatch.setattr(speed, "recording_of", lambda engine, model: Recording(capture, fused=model))
    measure(model, prompt(60), setting(name), 2, rounds.WARM_TOKENS)
    assert len(compiled) == len(recorded) == 1
    measure(model, prompt(60), setting(name), 2, rounds.WARM_TOKENS - 2)
    assert len(recorded) == 1, "the warm-up is no longer than it has to be"


def test_each_measurement_allocates_the_layers_tokens_anew(model, monkeypatch):
    chosen, calls = setting("pyramidkv", 60), []
    kind = type(chosen.method.allocation)
    tokens = kind.tokens
    monkeypatch.setattr(kind, "tokens", lambda *arguments: calls.append(arguments) or tokens(*arguments))
    for number in (1, 2, 3):
        assert measure(model, prompt(100), chosen, 1, 4).allocation_seconds > 0
        assert len(calls) == 2 * number, "once as a part of the compression, once by itself"


def test_decoding_starts_when_the_batch_is_there(model, monkeypatch):
    events = []
    for name in ("batched", "wait_for", "decode"):
        work = getattr(speed, name)
        monkeypatch.setattr(speed, name, lambda *a, name=name, work=work, **k: events.append(name) or work(*a, **k))
    measure(model, prompt(60), setting("snapkv", 30), 3, 4)
    assert events == ["batched", "wait_for", "decode", "wait_for"]


def test_caches_that_are_packed_answer_a_batch_at_once(model):
    ids = prompt(100)
    for name in ("snapkv", "kivi", "spindle"):
        assert measure(model, ids, setting(name, 50), 3, 4).stacked_layers == 4
    assert measure(model, ids, setting("quest", 50), 3, 4).stacked_layers == 2  # its dense layers
    assert measure(model, ids, setting("full"), 1, 4).stacked_layers == 0, "one sequence is no batch"


def test_bytes_are_those_of_the_caches(model):
    full = measure(model, prompt(100), setting("full"), 3, 6).footprint
    layer = 2 * 2 * 100 * 32 * 4  # K and V, KV heads, tokens, head_dim, float32
    assert full.full == full.prefilled == full.kept == full.peak == 4 * layer
    assert full.decoded == 4 * layer * 164 // 100  # one block of 64 more tokens
    snap = measure(model, prompt(100), setting("snapkv", 50), 3, 6).footprint
    assert snap.prefilled == snap.kept == 2 * layer
    assert snap.peak == 2 * layer + layer  # the last layer, uncompressed, beside all compressed ones
    assert snap.peak_of(1) == max(snap.peak, snap.decoded)
    assert replace(snap, decoded=0, joining=0).peak_of(5) == 4 * 2 * layer + 3 * layer
    # joined and decoded tokens outgrow one prompt's peak
    assert snap.peak_of(1000) == 1000 * snap.joining > 1000 * snap.decoded
    assert measure(model, prompt(100), setting("minicache"), 2, 6).memory == "shared"


@pytest.mark.parametrize("name", ["full", "snapkv", "pyramidkv"])
def test_the_peak_of_a_batch_is_what_lived_when_its_caches_were_joined(name, model, monkeypatch):
    """Each layer exists twice for a moment, the layers below it with room and those above it without."""
    footprint, living = measure(model, prompt(100), setting(name, 50), 1, 6).footprint, Living(monkeypatch)
    living.look_before(monkeypatch, Part, "__init__")
    lived = living.most_while(lambda: measure(model, prompt(100), setting(name, 50), 4, 6))
    assert footprint.peak_of(4) == lived > 4 * footprint.decoded


def test_a_cache_that_waits_for_the_first_decoded_token_is_compressed_before_others_come(model):
    chosen = setting("simlayerkv_decode")
    chosen.method.delta, chosen.method.window = 0.0, 20  # every layer is lazy
    turn = measure(model, prompt(100), chosen, 3, 8)
    assert turn.decode_steps == 6 and {len(tokens) for tokens in turn.tokens} == {8}
    assert [layer.r1 for layer in turn.layers] == [(4 + 19) / 100] * 4
    assert turn.footprint.kept == turn.footprint.full * 23 // 100
    assert turn.footprint.prefilled < turn.footprint.full
    assert turn.stacked_layers == 4


def test_a_cache_that_is_cut_while_decoding_had_its_most_bytes_before(model):
    """The whole prompt stays until the fifth pass, each token of which is 4 layers' K and V of 2 heads."""
    when = DecodeCompression(every=5, prompt="whole")
    chosen = Setting("late", Eviction(scoring=KNorm(), decode_compression=when), "{}", budget=20)
    footprint = measure(model, prompt(100), chosen, 3, 12).footprint
    most = 4 * 2 * 2 * 105 * 32 * 4
    assert footprint.decoded < footprint.peak < most
    assert footprint.peak_of(1) == most and footprint.peak_of(7) == 7 * most


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
            measure(model, prompt(60), Setting("w", chosen, '{"w": 1}'), 1 + number % 3, 5)
    assert [each.alive for each in watched] == [[0, 0, 0], [0, 0, 0]]
    assert len(EVERY) == 6 * 4 * 2


def test_bytes_held_and_read_while_decoding_are_beside_those_of_fullkv(model):
    full = measure(model, prompt(100), setting("full"), 3, 6).figures
    token = 4 * 2 * 2 * 32 * 4  # layers, K and V, KV heads, head_dim, float32
    assert full.decode_tokens == 5 and full.decode_bytes_end == 105 * token
    assert full.decode_bytes_mean == full.decode_bytes_read == 103 * token
    assert full.r_mean == full.r_read == full.r_end == full.r_peak == 1
    snap = measure(model, prompt(100), setting("snapkv", 50), 1, 6).figures
    assert snap.r_mean == snap.r_read == 53 / 103 and snap.r_end == 55 / 105
    quest = measure(model, prompt(100), setting("quest", 50), 1, 6).figures
    assert quest.r_read < 0.9 < quest.r_mean


def test_bytes_while_decoding_are_those_of_an_answer_alone_with_a_pass_before_the_batch_too(model):
    chosen = setting("simlayerkv_decode")
    chosen.method.delta, chosen.method.window = 0.0, 20  # every layer is lazy
    measured = measure(model, prompt(100), chosen, 3, 6)
    compressed = SharedPass(model, prompt(100), FullPrefill(), chosen.method.needs).compress(chosen.method, 100)
    alone = generate(model, compressed.caches, compressed.logits, 6, frozenset())
    assert measured.figures == decode_figures(compressed, compressed.caches, alone.decode_bytes, 100)
    token = 4 * 2 * 2 * 32 * 4
    assert measured.figures.decode_bytes_peak == 101 * token == measured.footprint.peak_of(1)
    # the other two were compressed before
    apart = replace(measured.footprint, joining=0)
    assert apart.peak_of(3) == 101 * token + 2 * apart.prefilled


@pytest.mark.parametrize("frozen", [0, 5])
def test_objects_are_collected_again_unless_some_were_excluded_before(frozen, monkeypatch):
    calls = []
    monkeypatch.setattr(rounds.gc, "get_freeze_count", lambda: frozen)
    for name in ("freeze", "unfreeze"):
        monkeypatch.setattr(rounds.gc, name, lambda name=name: calls.append(name))
    with rounds.little_to_collect():
        assert calls == ["freeze"]
    assert calls == ["freeze", *(["unfreeze"] if not frozen else [])]
