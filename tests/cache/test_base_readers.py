"""A layer whose keys and values later layers attend to keeps them until the last of these has attended."""

import torch

from kvbench.cache.sliding_window import WindowLayer
from kvbench.evaluation.prefill_passes import SharedPass
from kvbench.methods.simlayerkv.method import FirstDecodeDecision, FirstDecodeLayer
from kvbench.prefill import FullPrefill, Needs
from kvbench.prefill.evicting import EvictingLayer
from kvbench.prefill.full import CaptureLayer
from tests.support.every_method import setting
from tests.support.hybrids import hybrid_model
from tests.support.tiny import prompt, random_layer

SCALING = 8**-0.5


def vectors(count: int, heads: int = 2) -> torch.Tensor:
    return torch.randn(1, heads, count, 8, generator=torch.Generator().manual_seed(count))


def test_a_window_moves_on_when_the_last_reader_has_attended():
    layer, alone = WindowLayer(12, readers=2), WindowLayer(12)
    for each in (layer, alone):
        each.update(vectors(20), vectors(20))
    query = vectors(20, heads=6)
    expected = alone.attend(query, SCALING)
    for attend in (layer.attend, layer.reread):
        torch.testing.assert_close(attend(query, SCALING), expected)
        assert layer.length == 20
    torch.testing.assert_close(layer.reread(query[:, :, -1:], SCALING), expected[:, :, -1:])
    assert layer.length == alone.length == 11


def test_a_method_that_reduces_its_cache_at_intervals_waits_for_the_last_reader():
    one, model = setting("knorm_decode_512", budget=24), hybrid_model("gemma3n_text")
    compressed = SharedPass(model, prompt(60), FullPrefill(), one.method.needs).compress(one.method, 24)
    cache = compressed.caches[7]
    assert cache.readers == 2
    dropped = 0
    for step in range(1, 9):
        new, query = torch.randn(1, 2, 1, 32), torch.randn(1, 6, 1, 32)
        cache.update(new, new)
        held = cache.filled_bytes
        for attend in (cache.attend, cache.reread):
            attend(query, SCALING)
            assert cache.filled_bytes == held and cache.get_seq_length() == 60 + step
        cache.reread(query, SCALING)
        dropped += cache.filled_bytes < held
    assert dropped == cache.triggers > 0


def test_a_layer_is_judged_at_the_first_token_once_the_last_reader_has_attended():
    stored = []
    decision = FirstDecodeDecision(1, lambda *_: torch.zeros(()), lambda scores: [lambda layer: stored.append(layer)])
    layer = FirstDecodeLayer(random_layer(), decision)
    layer.readers = 1
    layer.compress = stored.append
    layer.update(vectors(1), vectors(1))
    layer.attend(vectors(1, heads=6), SCALING)
    assert not stored
    layer.reread(vectors(1, heads=6), SCALING)
    assert len(stored) == 1
    layer.update(vectors(1), vectors(1))
    layer.attend(vectors(1, heads=6), SCALING)
    layer.reread(vectors(1, heads=6), SCALING)
    assert len(stored) == 1


def test_a_prompts_chunk_is_evicted_once_the_last_reader_has_attended():
    layer = EvictingLayer(lambda state: torch.arange(3)[None], Needs())
    layer.readers = 1
    layer.update(vectors(20), vectors(20))
    out = layer.attend(vectors(20, heads=6), SCALING)
    assert layer.tokens.keys.shape[2] == 20
    torch.testing.assert_close(layer.reread(vectors(20, heads=6), SCALING), out)
    assert layer.tokens.keys.shape[2] == 3 and layer.state.n == 3 and layer.state.seen == 20


def test_a_prompts_layer_is_released_once_the_last_reader_has_attended():
    released = []
    layer = CaptureLayer(Needs(window=4), released.append)
    layer.readers = 1
    layer.update(vectors(20), vectors(20))
    query = vectors(20, heads=6)
    out = layer.attend(query, SCALING)
    assert not released
    torch.testing.assert_close(layer.reread(2 * query, SCALING / 2), out)
    (state,) = released
    assert torch.equal(state.queries, query[0, :, -4:])  # its own
