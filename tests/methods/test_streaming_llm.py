"""StreamingLLM with a given number of recent tokens."""

import pytest

from kvbench.evaluation.decode import generate
from kvbench.methods import (
    StreamingLLM,
)
from kvbench.prefill import Needs, prefill
from tests.support.tiny import prompt, random_state, tiny_model


def test_streaming_llm_with_its_recent_tokens_given_puts_the_rest_at_the_start():
    layer = random_state(1, n=200).layers[0]
    method = StreamingLLM(sinks=None, recent=32)
    assert method.minimum_budget == 33
    kept = method.select(layer, 128).indices[0].tolist()
    assert kept == [*range(96), *range(168, 200)]


@pytest.mark.parametrize("rope", ["original", "rolling"])
def test_streaming_llm_with_its_recent_tokens_given_stays_at_the_budget_when_it_evicts(rope):
    model = tiny_model()
    state = prefill(model, prompt(60), Needs())
    caches = StreamingLLM(None, "evict", rope, recent=8).compress(state, 20)
    generate(model, caches, state.logits, 30, frozenset())
    assert all(cache.k.length == 20 and cache.sinks == 12 for cache in caches)
