"""Leverage scores: their definition, their invariances and what they refuse."""

import pytest
import torch

from kvbench.errors import UserError
from kvbench.methods import DecodeCompression, Eviction, LeverageScore
from kvbench.ops.rope import Rope
from tests.support.tiny import random_layer, tiny_model

ROPE = Rope.from_model(tiny_model())
N = 40


def layer_of(keys: torch.Tensor | None = None):
    """A layer whose keys before RoPE are `keys` [2, N, 8]."""
    layer = random_layer(n=N, rope=ROPE)
    if keys is not None:
        layer.keys[:] = ROPE.rotate(keys.float(), torch.arange(N))
    return layer


def test_scores_are_diagonals_of_the_ridge_projection_of_centred_keys_before_rope():
    keys = torch.randn(2, N, 8, generator=torch.Generator().manual_seed(1), dtype=torch.float64)
    scoring = LeverageScore(sketch=5, seed=3)
    votes = scoring.votes(layer_of(keys))
    for head, matrix in enumerate(scoring.matrix(0, 2, 8)):
        x = (keys[head] - keys[head].mean(0)) @ matrix
        hat = x @ torch.linalg.inv(x.T @ x + 0.01 * torch.eye(5, dtype=torch.float64)) @ x.T
        torch.testing.assert_close(votes[head].double(), hat.diagonal(), rtol=1e-4, atol=1e-6)
    assert scoring.matrix(0, 200, 8).var().item() == pytest.approx(1 / 5, rel=0.05)


def test_a_key_away_from_all_others_has_a_leverage_of_almost_1_and_stays():
    keys = torch.randn(2, N, 8, generator=torch.Generator().manual_seed(1))
    keys[:, 17] = 1000
    layer = layer_of(keys)
    votes = LeverageScore(sketch=4).votes(layer)
    assert votes[:, 17].min() > 0.9 and votes.min() >= 0 and votes.max() <= 1
    kept = Eviction(scoring=LeverageScore(sketch=4, sinks=2, window=3)).select(layer, 0, 4, 6).indices.tolist()
    assert kept == [[0, 1, 17, 37, 38, 39]] * 2


def test_layers_and_seeds_have_projections_of_their_own():
    one, again = (LeverageScore().matrix(2, 2, 8) for _ in range(2))
    assert torch.equal(one, again)
    assert not torch.equal(one, LeverageScore().matrix(3, 2, 8))
    assert not torch.equal(one, LeverageScore(seed=1).matrix(2, 2, 8))


def test_more_columns_than_channels_and_keys_all_alike_make_no_nan():
    assert LeverageScore().votes(layer_of()).isfinite().all()
    assert LeverageScore().votes(layer_of(torch.ones(2, N, 8))).abs().max() < 1e-3


def test_a_model_without_rope_and_scores_while_decoding_are_refused():
    with pytest.raises(UserError, match="LeverageScore needs a model with rotary position embeddings"):
        LeverageScore().votes(random_layer())
    with pytest.raises(UserError, match="LeverageScore reads what only the prefill"):
        Eviction(scoring=LeverageScore(), decode_compression=DecodeCompression(every=8))
