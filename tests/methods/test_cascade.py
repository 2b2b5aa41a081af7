"""memory=stream for budgets that all layers share: earlier layers are cut again, to the caches of the shared mode."""

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from kvbench.cache.base import storage_bytes
from kvbench.errors import UserError
from kvbench.evaluation.decode import generate
from kvbench.evaluation.prefill_passes import SharedPass, Stream, StreamedPass
from kvbench.evaluation.settings import Setting
from kvbench.methods import (
    CAKE,
    AdaKV,
    Compactor,
    CriticalKV,
    Dense,
    Eviction,
    Fp8,
    KNorm,
    LAVa,
    LAVaHeads,
    Matched,
    MatchingPursuit,
    MeanVariance,
    Method,
    Preference,
    ScoreEntropy,
    ThinK,
    WindowAttention,
)
from kvbench.methods.eviction.decode_compression import DecodeCompression
from kvbench.prefill import FullPrefill
from kvbench.runner.request import check_memory
from tests.support.tiny import prompt, random_state, tiny_model

N, WINDOW, LAYERS = 90, 8, 6
WINDOWED, TOKEN = WindowAttention(WINDOW), 2 * 2 * 8 * 4  # K and V, two KV heads of eight float32
OFFICIAL = Preference(WINDOW, alloc="official")
LAVA = Eviction(ScoreEntropy(), LAVa(WINDOW, 5), group_reduce="max", heads=LAVaHeads())
METHODS = {
    "cake": CAKE(Preference(WINDOW), MeanVariance(WINDOW)),
    "cake evict": CAKE(OFFICIAL, MeanVariance(WINDOW), decode="evict"),
    "lava": LAVA,
    "lava official": Eviction(
        ScoreEntropy("official"), LAVa(WINDOW, 5), group_reduce="max", heads=LAVaHeads(floor="official")
    ),
    "query heads": Eviction(OFFICIAL, WINDOWED, "query_head", storage=Dense("union"), heads=AdaKV()),
    "hard floor": Eviction(ScoreEntropy(), CriticalKV(WINDOWED), heads=AdaKV(0.4, "hard")),
    "layers": Eviction(Preference(WINDOW, 1.6, 0.4), WINDOWED, "layer", storage=Fp8()),
    "channels": Eviction(ScoreEntropy(), WINDOWED, storage=ThinK(recent=8, window=WINDOW)),
    "no window": Eviction(OFFICIAL, KNorm()),
    "decoding": Eviction(OFFICIAL, WINDOWED, decode_compression=DecodeCompression(every=4)),
}


def sharpened(power: float):
    """Layers whose attention is the sharper, the higher (power > 1) or the lower they are."""
    state = random_state(LAYERS, n=N, window=WINDOW)
    for layer in state.layers:
        layer.keys = layer.keys * power**layer.index
    return state


def streamed(method: Method, state, budget: int) -> Stream:
    stream = Stream(method, LAYERS, budget)
    for layer in state.layers:
        stream(layer)
    stream.finish()
    return stream


@pytest.mark.parametrize("power", [1.5, 0.6])
@pytest.mark.parametrize("budget", [20, 60, 85, N])
@pytest.mark.parametrize("name", METHODS)
def test_both_modes_give_the_same_caches(name, budget, power):
    state = sharpened(power)
    for mine, other in zip(
        streamed(METHODS[name], state, budget).layers.caches, METHODS[name].compress(state, budget), strict=True
    ):
        assert mine.kept == other.kept
        assert all(torch.equal(a, b) for a, b in zip(mine.tensors(), other.tensors(), strict=True))


@pytest.mark.parametrize("name", ["cake evict", "lava official"])
def test_both_modes_decode_the_same_tokens(name):
    model, ids, method = tiny_model(num_layers=4), prompt(N), METHODS[name]
    passes = SharedPass(model, ids, FullPrefill(), method.needs), StreamedPass(model, ids, FullPrefill())
    one, other = (source.compress(method, 30) for source in passes)
    assert torch.equal(one.logits, other.logits) and one.full_bytes == other.full_bytes
    texts = [generate(model, x.caches, x.logits, 30, frozenset()).tokens for x in (one, other)]
    assert texts[0] == texts[1] and len(set(texts[0])) > 3


@pytest.mark.parametrize("allocation", [Preference(WINDOW), OFFICIAL, ScoreEntropy()])
@pytest.mark.parametrize("n", [WINDOW - 2, WINDOW + 1, 40])
def test_layers_of_a_prompt_within_the_budget_divide_what_decoding_drops(allocation, n):
    """By the weights of the whole prompt; alike where no token lies before the window."""
    budget, model, ids = max(n, 20), tiny_model(num_layers=4), prompt(n)
    when = DecodeCompression(every=4, budget=20)
    method = Eviction(allocation, WINDOWED, "layer", decode_compression=when)
    held = []
    for source in (SharedPass(model, ids, FullPrefill(), method.needs), StreamedPass(model, ids, FullPrefill())):
        made = source.compress(method, budget)
        assert all(cache.kept.r1 == 1 for cache in made.caches)
        generate(model, made.caches, made.logits, 61 - n, frozenset())
        held.append([cache.k.length for cache in made.caches])
    since = (60 - n) % 4  # tokens read after the last reduction
    assert held[0] == held[1] and 0.9 * 80 < sum(held[0]) - 4 * since <= 80
    assert len(set(held[0])) == 1 if n <= WINDOW else allocation == ScoreEntropy() or len(set(held[0])) > 1


@pytest.mark.parametrize("name, times", [("cake", 2), ("cake evict", 1), ("lava", 1)])
def test_the_peak_is_one_layer_the_budget_of_all_and_the_scores(name, times):
    budget, state = 20, sharpened(1.1)
    beside = LAYERS * 2 * ((N - WINDOW) * 4 + N)  # scores in float32, and which tokens are held
    peak = streamed(METHODS[name], state, budget).peak_bytes
    rounded = 3 * LAYERS  # tokens: a layer's share, and each of its two heads
    assert (N + LAYERS * budget) * TOKEN < peak <= (N + times * LAYERS * budget + rounded) * TOKEN + beside
    assert peak < storage_bytes(x for layer in state.layers for x in (layer.keys, layer.values))


def test_a_layer_is_freed_before_the_next_one_is_read():
    model, alive, whole = tiny_model(num_layers=4), [], []
    stream = Stream(LAVA, 4, 20)

    def watched(layer):
        alive.append(sum(not torch.UntypedStorage._expired(reference) for reference in whole))
        whole.extend(x.untyped_storage()._weak_ref() for x in (layer.keys, layer.values))
        stream(layer)

    FullPrefill().run(model, prompt(N), LAVA.needs, watched)
    assert alive == [0, 0, 0, 0]


@given(
    weights=st.lists(st.floats(0, 1e6), min_size=1, max_size=12),
    free=st.integers(1, 100),
    dropped=st.integers(1, 100),
    allocation=st.sampled_from([Preference(), OFFICIAL, ScoreEntropy(), ScoreEntropy("official")]),
)
def test_no_further_layer_gives_an_earlier_one_more_than_its_bound(weights, free, dropped, allocation):
    budget, n, m = WINDOW + free, WINDOW + free + dropped, len(weights)
    tokens = allocation.divide(weights, budget, n, WINDOW)
    for known in range(1, m + 1):
        bounds = allocation.bounds(weights[:known], budget, n, WINDOW, m)
        assert all(count <= bound <= n for count, bound in zip(tokens, bounds, strict=False)) and len(bounds) == known


def test_a_prompt_that_stays_whole_until_it_is_decoded_is_refused():
    whole = Eviction(OFFICIAL, WINDOWED, decode_compression=DecodeCompression(every=4, prompt="whole"))
    with pytest.raises(UserError, match="'whole', whose layers are compressed together"):
        check_memory("stream", [Setting("whole", whole, "{}", ratio=0.2)])
    check_memory("stream", [Setting("lava", LAVA, "{}", ratio=0.2)])


READING = {
    "matched": Eviction(Preference(WINDOW), WINDOWED, storage=Matched()),
    "pursuit": Eviction(ScoreEntropy(), MatchingPursuit(window=WINDOW)),
    "compactor": Eviction(Preference(WINDOW), Compactor()),
}


@pytest.mark.parametrize("name", READING)
def test_parts_that_read_dropped_tokens_are_refused(name):
    with pytest.raises(UserError, match=f"'{name}', whose layers are compressed together"):
        check_memory("stream", [Setting(name, READING[name], "{}", ratio=0.2)])


def test_a_part_that_reads_dropped_tokens_streams_where_each_layer_is_cut_once():
    assert Eviction(scoring=WINDOWED, storage=Matched()).streams
    assert Eviction(Preference(WINDOW), Compactor(blending=0.3)).streams
