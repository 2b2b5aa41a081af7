"""A threshold of scores: what each head keeps, and that no budget matters."""

import pytest
import torch
from torch.testing import assert_close

from kvbench.cache.dense import DenseLayer
from kvbench.errors import UserError
from kvbench.methods import NACL, Eviction, Kivi, KNorm, MiniCache, Rerotated, ScoreThreshold, WindowAttention
from tests.support.quantised import TOLERANCE
from tests.support.tiny import random_layer

N, WINDOW = 60, 10


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
def test_heads_attend_to_their_tokens_above_the_threshold_and_the_window(dtype):
    torch.manual_seed(0)
    layer = random_layer(n=N, dtype=dtype)
    norms = layer.keys.float().norm(dim=2)
    cut = float(norms.median())
    cache = ScoreThreshold(-cut, KNorm(), WINDOW).compress_layer(layer, 0, 1, N)
    kept = norms <= cut
    kept[:, -WINDOW:] = True
    counts = kept.sum(dim=1).tolist()
    assert cache.kept.retained == 2 * sum(counts) and counts[0] != counts[1]
    query, key, value = (torch.randn(1, heads, 1, 8).to(dtype) for heads in (6, 2, 2))
    cache.update(key, value)
    out = cache.attend(query, 0.4)
    for head, row in enumerate(kept):
        keys, values = (
            torch.cat([x[head, row], new[0, head]]).double() for x, new in ((layer.keys, key), (layer.values, value))
        )
        own = query[0, 3 * head : 3 * head + 3, 0].double()
        assert_close(
            out[0, 3 * head : 3 * head + 3, 0].double(), (own @ keys.T * 0.4).softmax(-1) @ values, **TOLERANCE[dtype]
        )


@pytest.mark.parametrize("granularity", ["kv_head", "query_head"])
def test_scores_are_those_of_an_eviction(granularity):
    layer = random_layer(n=N, window=8)
    scoring = WindowAttention(window=8)
    cache = ScoreThreshold(0.2, scoring, 0, granularity).compress_layer(layer, 0, 1, N)
    scores = Eviction(scoring=scoring, granularity=granularity).scores(layer, 8)  # the scoring's window is more than 0
    assert list(cache.kept.per_head) == [8 + count for count in (scores >= 0.2).sum(dim=1).tolist()]


def test_no_threshold_and_one_that_nothing_reaches():
    layer = random_layer(n=N)
    for threshold, kept in ((-1e9, N), (1e9, WINDOW)):
        cache = ScoreThreshold(threshold, KNorm(), WINDOW).compress_layer(layer, 0, 1, 1)
        assert cache.kept.retained == 2 * 2 * kept and cache.get_seq_length() == N
    short = ScoreThreshold(1e9, KNorm(), N).compress_layer(layer, 0, 1, 1)
    assert type(short) is DenseLayer and not ScoreThreshold(0.0).takes_budget


def test_a_storage_of_unequal_heads_holds_it():
    layer = random_layer(n=N, head_dim=32)
    cache = ScoreThreshold(-5.7, KNorm(), WINDOW, storage=Kivi(residual=32)).compress_layer(layer, 0, 1, N)
    assert cache.kept.r3 < 1 and cache.nbytes < 2 * 2 * N * 32 * 4


def test_refused():
    with pytest.raises(UserError, match="NACL does not choose tokens by one score each"):
        ScoreThreshold(0.1, NACL())
    with pytest.raises(UserError, match="Rerotated holds the same number of tokens in every head"):
        ScoreThreshold(0.1, storage=Rerotated())
    with pytest.raises(UserError, match="MiniCache"):
        ScoreThreshold(0.1, storage=MiniCache())


def test_scores_are_smoothed_over_the_edge_of_a_window_larger_than_the_scorers():
    """As in kvpress's DMSPress, whose scorer knows nothing of the sliding window."""
    layer, scoring = random_layer(n=N, window=8), WindowAttention(window=8, kernel=7)
    votes = torch.zeros(layer.num_attention_heads, N)
    votes[:, 41] = 1.0  # inside the last 20 tokens, before the scorer's 8
    layer.once(("window votes", 8), lambda: votes)
    chosen = ScoreThreshold(0.5, scoring, 20).chosen(layer)
    assert chosen[0].nonzero().flatten().tolist() == list(range(38, N))
