"""ChunkKV: which chunks stay, where the budget cuts one, and what a base may be."""

from dataclasses import dataclass

import pytest
import torch

from kvbench.errors import UserError
from kvbench.methods import Chunks, CriticalKV, Eviction, KNorm, Random, Scoring, WindowAttention
from tests.support.tiny import random_layer


@dataclass
class Given(Scoring):
    """Scores of two KV heads that a test chose; the last `window` tokens stay."""

    scores: tuple = ()
    window: int = 0
    per_query_head = False

    def protected(self, budget):
        return self.window

    def votes(self, layer):
        return torch.tensor(self.scores)


SCORES = (
    (0.0, 0, 9, 1, 1, 1, 5, 0, 0, 4, 4),
    (0.0, 0, 0, 2, 2, 2, 0, 1, 0, 0, 0),
)  # means of 3: 3, 1, 5/3, 4; 0, 2, 1/3, 0


def kept(scoring, budget, n=11, **options) -> list[list[int]]:
    return Eviction(scoring=scoring, **options).select(random_layer(n=n), 0, 1, budget).indices.tolist()


def test_each_head_keeps_its_best_chunks_and_the_beginning_of_the_last_that_fits():
    chunks = Chunks(Given(SCORES), 3)
    assert kept(chunks, 5) == [[0, 1, 2, 9, 10], [3, 4, 5, 6, 7]]
    assert kept(chunks, 3) == [[0, 9, 10], [3, 4, 5]]  # the shorter last chunk counts by its mean


def test_a_chunk_longer_than_the_prompt_is_the_prompt_and_takes_no_more_memory():
    scores = [Chunks(KNorm(), length).smoothed(-torch.arange(11.0).expand(2, -1)) for length in (11, 10**15)]
    assert torch.equal(*scores) and kept(Chunks(KNorm(), 10**15), 3) == kept(Chunks(KNorm(), 11), 3)


def test_a_layer_keeps_one_set_by_the_mean_over_its_heads():
    assert kept(Chunks(Given(SCORES), 3), 5, granularity="layer") == [[0, 1, 2, 9, 10]]
    assert kept(Chunks(Given(SCORES), 3), 8, granularity="layer") == [[0, 1, 2, 3, 4, 5, 9, 10]]


def test_chunks_end_before_the_window_which_stays():
    assert kept(Chunks(Given(SCORES, window=2), 3), 5) == [[0, 1, 2, 9, 10], [3, 4, 5, 9, 10]]


def test_chunks_of_one_token_are_the_scores_of_the_base_after_its_pooling():
    layer = random_layer(n=60, window=8)
    base = WindowAttention(window=8, kernel=5)
    for granularity in ("kv_head", "layer"):
        ours, plain = (
            Eviction(scoring=s, granularity=granularity).select(layer, 0, 1, 20) for s in (Chunks(base, 1), base)
        )
        assert ours.indices.tolist() == plain.indices.tolist()


def test_a_base_has_its_needs_its_protected_tokens_and_its_smallest_budget():
    chunks = Chunks(Random(sinks=2, window=3))
    assert (chunks.sinks, chunks.protected(9), chunks.minimum_budget, chunks.per_query_head) == (2, 3, 6, False)
    assert Chunks().needs == WindowAttention().needs and Chunks(KNorm()).signed


@pytest.mark.parametrize("base", [CriticalKV(), Chunks()], ids=lambda base: type(base).__name__)
def test_a_base_without_one_score_per_token_is_refused(base):
    with pytest.raises(UserError, match=f"{type(base).__name__} does not choose by one score of each token"):
        Chunks(base)
