"""RocketKV: how its stages share a compression, which tokens a group reads, and the bytes of that."""

import pytest
import torch
from torch.testing import assert_close

from kvbench.cache.dense import DenseLayer
from kvbench.evaluation.decode import generate
from kvbench.methods import Eviction, FullKV, RocketKV, WindowAttention
from kvbench.methods.rocketkv.layer_cache import HybridLayer
from kvbench.methods.rocketkv.method import page_and_channels
from kvbench.methods.selection import Selection
from kvbench.ops.softmax import Softmax
from kvbench.prefill import Needs, prefill
from tests.support.quantised import TOLERANCE
from tests.support.tiny import LAYOUTS, prompt, random_layer, tiny_model

D, SCALING = 8, 0.3


def hybrid(layer, page=4, tokens=10, channels=3) -> HybridLayer:
    kept = Selection.everything(layer).kept(layer)
    return HybridLayer(layer.keys, layer.values, page, tokens, channels, layer.n, kept)


def step(cache, dtype=torch.float32):
    query, key, value = (torch.randn(1, count, 1, D).to(dtype) for count in (6, 2, 2))
    cache.update(key, value)
    return query, key[0], value[0]


def plain_scores(query, keys, page, channels, scaling):
    """Approximate attention [2, len] in float64, a loop over heads, pages and channels."""
    found = torch.zeros(2, keys.shape[1], dtype=torch.float64)
    for head, own in enumerate(keys.double()):
        group = query[0, 3 * head : 3 * head + 3, 0].double()
        best = group.abs().sum(0).argsort(descending=True)[:channels].tolist()
        for q in group:
            logits = []
            for at in range(len(own)):
                place = own[at // page * page : (at // page + 1) * page]
                bounds = [place[:, c].max() if group[:, c].sum() > 0 else place[:, c].min() for c in best]
                logits.append(sum(q[c] * bound for c, bound in zip(best, bounds, strict=True)))
            share = q[best].abs().sum() / q.abs().sum()
            found[head] += (torch.stack(logits) * scaling / share.sqrt()).softmax(0) / 3
    return found


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("page", [1, 4])
@pytest.mark.parametrize("n", [13, 16])
def test_scores_and_attention_over_the_tokens_of_the_best(n, page, dtype):
    torch.manual_seed(n)
    layer = random_layer(n=n, dtype=dtype)
    cache, keys, values = hybrid(layer, page), layer.keys, layer.values
    for _ in range(6):
        query, key, value = step(cache, dtype)
        keys, values = torch.cat([keys, key], 1), torch.cat([values, value], 1)
        expected = plain_scores(query, keys, page, 3, SCALING)
        assert_close(cache.scores(query, SCALING).double(), expected, rtol=1e-4, atol=1e-6)
        chosen = cache.choose(query, SCALING)
        outside = expected.scatter(1, chosen, -1.0)
        assert (expected.gather(1, chosen).amin(dim=1) >= outside.amax(dim=1) - 1e-6).all()
        assert all(len({*row}) == 10 for row in chosen.tolist())
        for scaling in (SCALING, Softmax(SCALING, 2.0, torch.linspace(-1, 1, 6))):
            out = cache.attend(query, scaling)
            rows = (x.gather(1, chosen[..., None].expand(-1, -1, D)) for x in (keys, values))
            whole = DenseLayer(*rows, n, cache.kept)
            assert_close(out, whole.attend(query, scaling), **TOLERANCE[dtype])


def test_all_channels_and_pages_of_one_token_are_exact_top_k_of_the_mean_attention():
    layer = random_layer(n=30)
    cache = hybrid(layer, page=1, tokens=5, channels=D)
    query, key, _ = step(cache)
    keys = torch.cat([layer.keys, key], 1)
    attention = (query[0, :, 0].view(2, 3, D) @ keys.mT * SCALING).softmax(-1).mean(1)
    assert_close(cache.scores(query, SCALING), attention)
    assert torch.equal(cache.choose(query, SCALING).sort().values, attention.topk(5).indices.sort().values)


def test_bounds_grow_with_the_tokens():
    layer = random_layer(n=10)
    grown = hybrid(layer)
    keys = layer.keys
    for _ in range(11):
        keys = torch.cat([keys, step(grown)[1]], 1)
    layer.keys = layer.values = keys
    assert torch.equal(grown.bounds.view, hybrid(layer).bounds.view)


def test_shares_of_the_compression():
    method = RocketKV()
    # c = 10: split 0.2 + 0.06 · log2(10) = 0.3993, 1000 / 10^0.3993 = 398.7
    assert method.capacity(1000, 100) == 398
    assert page_and_channels(3.98, 128) == (2, 64)  # floor 3, root 2; 128 · 2 / 3.98 = 64.3
    assert page_and_channels(1.9, 128) == (1, 67)
    assert page_and_channels(20.0, 8) == (5, 2)
    assert RocketKV(split=0.5).capacity(1600, 100) == 400
    assert method.capacity(120, 119) >= 119


def test_the_first_stage_is_snapkv_with_sums_of_a_group():
    layer = random_layer(n=100, window=8)
    cache = RocketKV(8, 5).compress_layer(layer, 0, 2, 20)
    snapkv = Eviction(scoring=WindowAttention(window=8, kernel=5), group_reduce="sum")
    kept = snapkv.select(layer, 0, 2, RocketKV().capacity(100, 20))
    assert torch.equal(cache.k.view[0], kept.of(layer.keys)) and torch.equal(cache.v.view[0], kept.of(layer.values))
    assert cache.tokens == 10 and cache.kept.retained == 2 * 2 * kept.count(layer)


def test_bytes_held_and_read():
    layer = random_layer(n=14)
    cache = hybrid(layer, page=4, tokens=6, channels=3)
    assert cache.filled_bytes == cache.nbytes == 2 * 4 * (14 * 2 * D + 4 * 2 * D)
    for _ in range(3):
        step(cache)
    assert cache.filled_bytes == 2 * 4 * (17 * 2 * D + 5 * 2 * D)
    assert cache.read_bytes == 2 * 4 * (6 * 2 * D + 5 * 3)  # tokens; one of the two bounds of 5 pages in 3 channels
    alone = hybrid(layer, page=1, tokens=6, channels=3)
    assert alone.bounds is None and alone.read_bytes == 2 * 4 * (6 * 2 * D + 14 * 3)
    everything = hybrid(layer, page=1, tokens=14, channels=3)
    assert everything.read_bytes == 2 * 4 * 14 * 2 * D


def test_equal_scores_read_the_earlier_tokens_and_a_query_of_zeros_reads_the_first():
    layer = random_layer(n=12)
    cache = hybrid(layer, page=4, tokens=6)
    step(cache)
    chosen = cache.choose(torch.zeros(1, 6, 1, D), SCALING)
    assert chosen.tolist() == [[*range(6)]] * 2


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_budget_of_the_prompt_is_fullkv_bit_for_bit_and_a_smaller_one_is_not(layout):
    model = tiny_model(layout=layout)
    state = prefill(model, prompt(100), Needs(window=8))
    expected = generate(model, FullKV().compress(state, 100), state.logits, 30, frozenset())
    method = RocketKV(8, 5)
    outputs = [generate(model, method.compress(state, budget), state.logits, 30, frozenset()) for budget in (100, 12)]
    assert outputs[0].tokens == expected.tokens != outputs[1].tokens


def test_the_first_layers_keep_everything():
    layer = random_layer(n=60, window=8)
    kinds = [type(RocketKV(8, 5, dense_layers=2).compress_layer(layer, index, 4, 12)) for index in range(4)]
    assert kinds == [DenseLayer, DenseLayer, HybridLayer, HybridLayer]
