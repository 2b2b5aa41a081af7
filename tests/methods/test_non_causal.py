"""Non-causal attention: its score from queries, keys and values, and what stays."""

import pytest
import torch

from kvbench.errors import UserError
from kvbench.methods import DecodeCompression, Eviction, NonCausalAttention
from kvbench.ops.block_sums import block_sums
from kvbench.prefill import Blocks, LayerState, Needs, prefill
from tests.support.tiny import prompt, tiny_model

N = 44


@pytest.fixture(scope="module")
def layer() -> LayerState:
    """The second layer of a prompt, with all of its queries."""
    needs = Needs(window=N, block_sums=frozenset({Blocks(16), Blocks(16, 0, 0, True)}))
    return prefill(tiny_model(), prompt(N), needs).layers[1]


@pytest.mark.parametrize("filled", [False, True])
def test_the_score_is_attention_inside_a_block_times_the_norm_of_the_value_averaged_over_neighbours(layer, filled):
    sums = torch.zeros(6, N, dtype=torch.float64)
    for head, queries in enumerate(layer.queries.double()):
        keys = layer.keys[head // 3].double()
        for start in range(0, N, 16):
            logits = queries[start : start + 16] @ keys[start : start + 16].T
            missing = (16 - len(logits)) * filled
            weights = logits.exp() / (logits.exp().sum(1, keepdim=True) + missing)
            sums[head, start : start + 16] = weights.sum(0) + missing / 16
        sums[head] *= layer.values[head // 3].double().norm(dim=1)
    padded = torch.nn.functional.pad(sums, (1, 1))
    expected = (padded[:, :-2] + padded[:, 1:-1] + padded[:, 2:]) / 3
    votes = NonCausalAttention(16, filled).votes(layer)
    torch.testing.assert_close(votes.double(), expected, rtol=1e-4, atol=1e-5)


def test_a_token_that_only_earlier_ones_attend_to_stays(layer):
    queries, keys = torch.zeros(6, 32, 8), torch.zeros(2, 32, 8)
    queries[:, :15, 0], keys[:, 15, 0] = 3.0, 3.0  # the last token of the first block
    sums = {Blocks(16): block_sums(queries, keys, 16)}
    made = LayerState(keys, torch.ones(2, 32, 8), 0.1, 6, block_sums=sums)
    kept = Eviction(scoring=NonCausalAttention(16, sinks=1, window=1)).select(made, 0, 4, 5).indices.tolist()
    assert kept == [[0, 14, 15, 16, 31]] * 2


def test_scores_while_decoding_are_refused():
    with pytest.raises(UserError, match="NonCausalAttention reads what only the prefill"):
        Eviction(scoring=NonCausalAttention(), decode_compression=DecodeCompression(every=8))
