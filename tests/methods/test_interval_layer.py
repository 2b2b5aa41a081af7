"""The cache of compression while decoding, against lists of tokens: what it stores after each reduction."""

import pytest
import torch

from kvbench.methods import DecodeCompression, Eviction, KNorm, Random, WindowAttention
from tests.support.my_decoding import LargeValues
from tests.support.tiny import random_layer

WINDOW = 5


def norms(keys, queries, stored, scaling):
    """KNorm's score of the stored positions of one head, of group queries [3, len, head_dim]."""
    return -keys[stored].norm(dim=-1)


def window_attention(keys, queries, stored, scaling):
    """SnapKV's: each of the last queries attends to the stored tokens up to its own, the mean over the group."""
    total = torch.zeros(len(stored))
    for position in stored[-WINDOW:]:
        visible = [place for place, one in enumerate(stored) if one <= position]
        weights = (queries[:, position] @ keys[stored][visible].T * scaling).softmax(dim=-1).mean(dim=0)
        total[visible] += weights
    return total


@pytest.mark.parametrize("slots", ["position", "score"])
@pytest.mark.parametrize(
    "scoring, scores, protected",
    [(KNorm(), norms, 0), (WindowAttention(window=WINDOW, kernel=1), window_attention, WINDOW)],
    ids=["KNorm", "WindowAttention"],
)
def test_each_reduction_keeps_what_a_plain_list_would(scoring, scores, protected, slots):
    n, budget, every, steps = 30, 20, 4, 23
    layer = random_layer(n=n, window=WINDOW)
    when = DecodeCompression(every=every, slots=slots)
    method = Eviction(scoring=scoring, decode_compression=when)
    cache = method.compress_layer(layer, 0, 2, budget)
    stored = [
        row.tolist() for row in method.select(layer, 0, 2, budget).indices
    ]  # per head, positions in order of their slots
    generator = torch.Generator().manual_seed(5)
    new = [torch.randn(count, steps, 8, generator=generator) for count in (6, 2, 2)]
    keys, values = (
        torch.cat([old, more], dim=1) for old, more in zip((layer.keys, layer.values), new[1:], strict=True)
    )
    queries = torch.cat([torch.zeros(6, n - WINDOW, 8), layer.queries, new[0]], dim=1)
    for step in range(steps):
        position = n + step
        cache.update(keys[None, :, position : position + 1], values[None, :, position : position + 1])
        out = cache.attend(queries[None, :, position : position + 1], layer.scaling)
        for head in range(2):
            stored[head].append(position)
            group = queries[3 * head : 3 * head + 3]
            weights = (group[:, position] @ keys[head, stored[head]].T * layer.scaling).softmax(dim=-1)
            torch.testing.assert_close(out[0, 3 * head : 3 * head + 3, 0], weights @ values[head, stored[head]])
            if (step + 1) % every == 0:
                ranked = scores(keys[head], group, stored[head], layer.scaling)
                ranked = ranked[: len(stored[head]) - protected]
                order, most = ranked.sort(descending=True, stable=True), budget - protected
                last, next_one = order.values[most - 1], order.values[most]
                assert last - next_one > 1e-5 * last.abs(), "rounding could keep another token"
                chosen = order.indices[:most].tolist()
                chosen = chosen if slots == "score" else sorted(chosen)
                window = stored[head][len(stored[head]) - protected :]
                stored[head] = [stored[head][slot] for slot in chosen] + window
            assert cache.k.view[0, head].equal(keys[head, stored[head]])
            assert cache.v.view[0, head].equal(values[head, stored[head]])
    assert cache.get_seq_length() == n + steps and cache.triggers == steps // every


def test_between_two_reductions_tokens_are_only_appended():
    layer = random_layer(n=30, window=WINDOW)
    cache = Eviction(scoring=KNorm(), decode_compression=DecodeCompression(every=10)).compress_layer(layer, 0, 2, 20)
    before = cache.k.view.clone()
    for _ in range(9):
        cache.update(torch.randn(1, 2, 1, 8), torch.randn(1, 2, 1, 8))
        cache.attend(torch.randn(1, 6, 1, 8), 0.3)
        assert cache.k.view[:, :, :20].equal(before)
    assert cache.k.length == 29 and cache.triggers == 0


def test_random_tokens_are_drawn_anew_at_each_reduction():
    layer = random_layer(n=30)
    cache = Eviction(scoring=Random(), decode_compression=DecodeCompression(every=1)).compress_layer(layer, 0, 2, 8)
    first = cache.k.view[0, :, 0].clone()
    for _ in range(60):
        cache.update(torch.randn(1, 2, 1, 8), torch.randn(1, 2, 1, 8))
        cache.attend(torch.randn(1, 6, 1, 8), 0.3)
    assert not (cache.k.view[0, :, 0] == first).all(dim=1).any(), "one slot was dropped each time, never the first"


def test_the_method_of_the_guide_drops_the_smallest_values_and_keeps_its_budget():
    n, budget, every = 30, 12, 4
    layer = random_layer(n=n)
    cache = LargeValues(recent=5, decode_compression=DecodeCompression(every=every)).compress_layer(layer, 0, 1, budget)
    assert cache.kept.retained == 2 * 2 * budget and cache.nbytes < layer.nbytes
    sizes = []
    for step in range(1, 11):
        new = torch.full((1, 2, 1, 8), 10.0 * step)  # values of the answer, all larger than those of the prompt
        cache.update(new, new)
        cache.attend(torch.ones(1, 6, 1, 8), 1.0)
        sizes.append(cache.k.length)
    assert sizes == [13, 14, 15, 12, 13, 14, 15, 12, 13, 14]
    assert cache.get_seq_length() == n + 10 and cache.triggers == 2
    # the last reduction, after 8 tokens, kept the whole answer and the four largest values of the prompt
    answer = [value for value in cache.v.view[0, 0, :, 0].tolist() if value.is_integer()]
    assert answer == [10.0 * step for step in range(1, 11)]
    norms = layer.values[0].norm(dim=-1)
    stay = norms[: n - 5].topk(budget - 5).indices  # after prefill, beside the last 5
    rest = torch.cat([stay, torch.arange(n - 5, n)])
    kept = rest[norms[rest].topk(4).indices].sort().values
    assert torch.equal(cache.v.view[0, 0, :4], layer.values[0, kept])
