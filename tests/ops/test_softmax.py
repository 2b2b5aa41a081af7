"""Soft caps and sinks in attention and in what is observed of it, against the formulas written out."""

import pytest
import torch

from kvbench.ops.attention import bent_attention, dense_attention, window_attention
from kvbench.ops.attention_mass import attention_mass
from kvbench.ops.column_sums import column_sums
from kvbench.ops.packed_attention import packed_attention
from kvbench.ops.segments import Segments
from kvbench.ops.softmax import Softmax, capped_, log_sum, of_heads, of_kv_heads, plain, weights

HEADS, KV, N, D = 6, 2, 30, 8
SINKS = torch.linspace(-1, 3, HEADS)
RULES = {
    "cap": Softmax(0.4, 1.5),
    "sinks": Softmax(0.4, None, SINKS),
    "both": Softmax(0.4, 1.5, SINKS),
}


def vectors(*shape: int, seed: int = 0, dtype=torch.float32) -> torch.Tensor:
    return torch.randn(*shape, D, generator=torch.Generator().manual_seed(seed)).to(dtype)


def probabilities(queries, keys, rule: Softmax) -> torch.Tensor:
    """Causal attention [heads, q, n] of the last q queries, in float64."""
    q, n = queries.shape[1], keys.shape[1]
    keys = keys.double().repeat_interleave(HEADS // len(keys), dim=0)
    logits = queries.double() @ keys.mT * rule.scaling
    if rule.softcap is not None:
        logits = rule.softcap * torch.tanh(logits / rule.softcap)
    logits = logits.masked_fill(~torch.ones(q, n, dtype=torch.bool).tril(n - q), float("-inf"))
    sinks = torch.full((HEADS,), float("-inf")) if rule.sinks is None else rule.sinks
    logits = torch.cat([logits, sinks.double()[:, None, None].expand(-1, q, 1)], dim=-1)
    return logits.softmax(dim=-1)[..., :-1]


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
@pytest.mark.parametrize("q", [1, 7, N])
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.bfloat16, 2e-2)])
def test_attention_is_the_formula(rule, q, dtype, tolerance):
    query, keys, values = (
        vectors(h, t, seed=s, dtype=dtype) for s, (h, t) in enumerate(((HEADS, q), (KV, N), (KV, N)))
    )
    expected = probabilities(query, keys, rule) @ values.double().repeat_interleave(HEADS // KV, dim=0)
    out = dense_attention(query[None], keys[None], values[None], rule)
    assert out.dtype == dtype and out.shape == (1, HEADS, q, D)
    torch.testing.assert_close(out[0].double(), expected, rtol=tolerance, atol=tolerance)


def test_rows_of_a_batch_have_the_same_sinks_and_tiles_change_nothing(monkeypatch):
    query, keys, values = vectors(3, HEADS, 9), vectors(3, KV, N, seed=1), vectors(3, KV, N, seed=2)
    whole = bent_attention(query, keys, values, RULES["both"])
    for row in range(3):
        one = dense_attention(*(x[row : row + 1] for x in (query, keys, values)), RULES["both"])
        torch.testing.assert_close(whole[row : row + 1], one)
    monkeypatch.setattr("kvbench.ops.attention.MOST_WEIGHTS", 2 * 3 * HEADS * N)
    torch.testing.assert_close(bent_attention(query, keys, values, RULES["both"]), whole)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_observed_attention_is_the_models(rule):
    queries, keys = vectors(HEADS, N), vectors(KV, N, seed=1)
    expected = probabilities(queries, keys, rule)
    sums, lse = column_sums(queries, keys, rule)
    torch.testing.assert_close(sums, expected.sum(dim=1).float(), rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(window_attention(queries[:, -5:], keys, rule), expected[:, -5:].float())
    chosen = torch.tensor([0, 3, 29])
    mass = attention_mass(queries[:, -5:], keys, rule, chosen)
    torch.testing.assert_close(mass, expected[:, -5:, chosen].sum(dim=-1).float(), rtol=1e-4, atol=1e-5)
    assert (expected.sum(dim=-1) < 1).all() == (rule.sinks is not None) and lse.shape == (HEADS, N)


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_packed_rows_of_different_lengths_have_the_sinks_of_their_heads(rule):
    lengths = [11, 4, 11, 11]  # two rows of two KV heads each
    keys, values, query = vectors(37), vectors(37, seed=1), vectors(2, HEADS, 1, seed=2)
    starts, heads = torch.tensor([0, 11, 15, 26, 37]), torch.tensor([0, 3, 6, 9, 12])
    tables = (x.int() for x in (starts, torch.tensor(lengths), heads))
    out = packed_attention(query, keys, values, Segments(*tables, 3, 11), rule)
    for row in range(2):
        for head in range(2):
            span = slice(starts[2 * row + head], starts[2 * row + head + 1])
            own = slice(3 * head, 3 * head + 3)
            alone = (query[row : row + 1, own], keys[None, None, span], values[None, None, span])
            expected = dense_attention(*alone, of_heads(rule, own))
            torch.testing.assert_close(out[row : row + 1, own], expected)


def test_hidden_tokens_stay_hidden_under_a_cap():
    logits = torch.tensor([[0.5, float("-inf"), 40.0]])
    assert capped_(logits, Softmax(1.0, 2.0))[0].tolist() == [pytest.approx(0.48984, abs=1e-4), float("-inf"), 2.0]


def test_a_number_is_left_as_it_is():
    logits = vectors(HEADS, 3)
    assert plain(0.4) == 0.4 == plain(RULES["both"]) and of_heads(0.4, slice(2)) == 0.4
    assert (
        of_kv_heads(0.4, torch.tensor([1]), 2) == 0.4 and of_kv_heads(RULES["cap"], torch.tensor([1]), 2).sinks is None
    )
    assert torch.equal(weights(logits, 0.4), logits.softmax(dim=-1)) and capped_(logits, 0.4) is logits
    assert torch.equal(log_sum(logits, 0.4), logits.logsumexp(dim=-1))


def test_heads_are_chosen_by_their_kv_heads():
    chosen = of_kv_heads(RULES["sinks"], torch.tensor([1]), KV)
    assert torch.equal(chosen.sinks, SINKS[3:])
    with pytest.raises(ValueError, match="sinks of 6 heads"):
        weights(vectors(4, 3), RULES["sinks"])


def test_code_that_takes_a_number_alone_fails_instead_of_leaving_out_a_cap():
    query, keys = vectors(1, HEADS, 1), vectors(1, HEADS, N)
    with pytest.raises(TypeError):
        torch.nn.functional.scaled_dot_product_attention(query, keys, keys, scale=RULES["cap"])
    with pytest.raises(TypeError):
        query * RULES["cap"]
