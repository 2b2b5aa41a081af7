"""Quest: which pages a query reads, exact attention over them, and the bytes that it reads."""

import pytest
import torch
from torch.testing import assert_close

from kvbench.cache.dense import DenseLayer
from kvbench.cache.paged import PagedLayer
from kvbench.evaluation.decode import generate
from kvbench.methods import FullKV, Quest
from kvbench.methods.selection import Selection
from kvbench.prefill import Needs, prefill
from tests.support.quantised import TOLERANCE
from tests.support.tiny import LAYOUTS, prompt, random_layer, random_state, tiny_model

D = 8


def paged(layer, page=4, pages=3, last_always=True) -> PagedLayer:
    group = layer.num_attention_heads // layer.num_key_value_heads
    kept = Selection.everything(layer).kept(layer)
    return PagedLayer(layer.keys, layer.values, page, pages, group, last_always, layer.n, kept)


def step(cache, dtype=torch.float32, heads=6, kv_heads=2, scale=1.0):
    query, key, value = (scale * torch.randn(1, count, 1, D) for count in (heads, kv_heads, kv_heads))
    cache.update(key.to(dtype), value.to(dtype))
    return query.to(dtype), key[0].to(dtype), value[0].to(dtype)


def plain_pages(query, keys, page, pages, last_always) -> list[list[int]]:
    """For each query head the pages of the largest upper bounds, the newest one first if it is always read."""
    heads = query.shape[1]
    chosen = []
    for head in range(heads):
        own = keys[head // (heads // len(keys))].double()
        bounds = []
        for start in range(0, len(own), page):
            products = query[0, head, 0].double() * own[start : start + page]
            bounds.append(products.amax(dim=0).sum().item())
        order = sorted(range(len(bounds)), key=lambda number: -bounds[number])
        if last_always:
            order.remove(len(bounds) - 1)
            order.insert(0, len(bounds) - 1)
        chosen.append(sorted(order[:pages]))
    return chosen


@pytest.mark.parametrize("dtype", TOLERANCE, ids=str)
@pytest.mark.parametrize("last_always", [True, False])
@pytest.mark.parametrize("n", [1, 13, 16, 40])
def test_attention_is_exact_over_the_pages_of_the_largest_bounds(n, last_always, dtype):
    layer = random_layer(n=n, dtype=dtype)
    cache, keys, values = paged(layer, last_always=last_always), layer.keys, layer.values
    for _ in range(12):
        query, key, value = step(cache, dtype)
        keys, values = torch.cat([keys, key], 1), torch.cat([values, value], 1)
        expected = plain_pages(query, keys, 4, 3, last_always)
        assert [sorted(pages) for pages in cache.choose(query).flatten(0, 1).tolist()] == expected
        seen = torch.zeros(6, 4 * -(-keys.shape[1] // 4), dtype=torch.bool)
        for head, pages in enumerate(expected):
            seen[head].view(-1, 4)[pages] = True
        seen = seen[:, : keys.shape[1]]
        logits = query[0].double() @ keys.double().repeat_interleave(3, 0).mT * 0.25
        weights = logits.masked_fill(~seen[:, None], float("-inf")).softmax(-1)
        expected = (weights @ values.double().repeat_interleave(3, 0)).float()
        assert_close(cache.attend(query, 0.25)[0].float(), expected, **TOLERANCE[dtype])


def test_bounds_grow_with_the_tokens_and_bound_every_product():
    layer = random_layer(n=10)
    grown = paged(layer)
    keys, values = layer.keys, layer.values
    for _ in range(21):
        query, key, value = step(grown)
        keys, values = torch.cat([keys, key], 1), torch.cat([values, value], 1)
    layer.keys, layer.values = keys, values
    rebuilt = paged(layer)
    assert torch.equal(grown.bounds.view, rebuilt.bounds.view) and grown.held == 8
    assert torch.equal(grown.rows[:, :31], rebuilt.rows) and grown.rows.shape[1] % 4 == 0
    low, high = rebuilt.bounds.view.split(D, dim=2)
    q = query[0].view(2, 3, 1, D)
    upper = torch.maximum(q * low[:, None], q * high[:, None]).sum(-1)
    products = q.flatten(1, 2) @ keys.mT
    assert (products <= upper.repeat_interleave(4, dim=2)[..., :31] + 1e-5).all()


def test_pages_of_one_token_are_exact_top_k_attention():
    layer = random_layer(n=30)
    cache = paged(layer, page=1, pages=5, last_always=False)
    query, key, _ = step(cache)
    logits = query[0, :, 0].view(2, 3, D) @ torch.cat([layer.keys, key], 1).mT
    assert torch.equal(cache.choose(query).sort().values, logits.topk(5).indices.sort().values)


def test_the_order_within_a_page_changes_nothing():
    layer = random_layer(n=16)
    outputs = []
    for order in ([0, 1, 2, 3], [2, 0, 3, 1]):
        index = torch.cat([4 * page + torch.tensor(order) for page in range(4)])
        keys, values = layer.keys[:, index], layer.values[:, index]
        torch.manual_seed(1)
        cache = paged(type(layer)(keys, values, layer.scaling, 6))
        query, _, _ = step(cache)
        outputs.append(cache.attend(query, 0.25))
    assert_close(*outputs)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("name", ["always", "competes"])
def test_a_budget_of_the_prompt_is_fullkv_bit_for_bit_and_a_smaller_one_is_not(layout, name):
    model = tiny_model(layout=layout)
    state = prefill(model, prompt(100), Needs())
    expected = generate(model, FullKV().compress(state, 100), state.logits, 30, frozenset())
    method = Quest(page=4, dense_layers=0, last_page=name)
    outputs = [generate(model, method.compress(state, budget), state.logits, 30, frozenset()) for budget in (100, 12)]
    assert outputs[0].tokens == expected.tokens != outputs[1].tokens


def test_the_first_layers_read_everything_and_the_others_the_budget():
    state = random_state(4, n=100)
    caches = Quest(page=4).compress(state, 30)
    assert [type(cache) for cache in caches] == [DenseLayer] * 2 + [PagedLayer] * 2
    shares = [cache.filled_bytes / layer.nbytes for cache, layer in zip(caches, state.layers, strict=True)]
    assert shares == pytest.approx([1, 1, 1.25, 1.25], abs=1e-3)  # 8 bytes count tokens
    assert caches[2].pages == 7 and Quest(page=4).minimum_budget == 12
    assert all(cache.kept.r1 == 1 for cache in caches)


@pytest.mark.parametrize(("alike", "share"), [(True, 0.1875), (False, 0.5625)])
def test_bytes_read_of_8192_tokens_lie_between_those_of_equal_and_of_disjoint_pages(alike, share):
    """A budget of 1024 in pages of 16 with 4 query heads a KV head: 1/16 for the bounds, 1/8 or 4/8 for pages."""
    n, pages = 8192, 64
    layer = random_layer(4, 1, n, D, observed=False)
    cache = paged(layer, page=16, pages=pages, last_always=False)
    assert cache.filled_bytes - cache.shared.nbytes == layer.nbytes * 1.0625
    layer.keys.zero_()
    for head in range(4):  # each channel is loud in pages of its own
        layer.keys[0, 1024 * head : 1024 * (head + 1), head] = 1
    cache = paged(layer, page=16, pages=pages, last_always=False)
    query = torch.eye(4, D) if not alike else torch.eye(1, D).expand(4, D)
    counted = cache.read_bytes
    cache.attend(query.view(1, 4, 1, D), 1.0)
    assert counted == pytest.approx(0.5625 * layer.nbytes)
    assert counted - cache.unread_bytes == pytest.approx(share * layer.nbytes)


def test_a_record_counts_a_page_once_for_the_heads_that_share_it():
    model = tiny_model()
    state = prefill(model, prompt(100), Needs())
    caches = Quest(page=4, dense_layers=0).compress(state, 12)
    output = generate(model, caches, state.logits, 20, frozenset())
    unread = sum(cache.unread_bytes for cache in caches)
    full = output.decode_bytes.figures(0, 0, state.nbytes, 100)
    figures = output.decode_bytes.figures(0, 0, state.nbytes, 100, unread)
    token = state.nbytes // 100
    tokens = sum(int(cache.shared) for cache in caches)  # of 2 KV heads in 3 layers
    bounds = sum(-(-(100 + t) // 4) for t in range(1, 20)) * token
    assert output.decode_bytes.read - unread == bounds + tokens * token // 6
    assert figures.r_read < full.r_read < 1 < figures.r_mean


@pytest.mark.parametrize("name", ["always", "competes"])
def test_the_room_behind_the_newest_token_is_not_read(name):
    """Of 97 to 102 tokens in 7 pages of 16, all are read, and no more than is stored."""
    model = tiny_model(layout="mqa")
    state = prefill(model, prompt(96), Needs())
    caches = Quest(page=16, dense_layers=0, last_page=name).compress(state, 95)
    output = generate(model, caches, state.logits, 7, frozenset())
    unread, counters = (
        sum(values) for values in zip(*((c.unread_bytes, c.shared.nbytes) for c in caches), strict=True)
    )
    read = output.decode_bytes.read - unread
    assert read <= output.decode_bytes.held - 6 * counters


def test_a_thousand_tokens_are_63_pages_the_last_of_them_half_full():
    cache = paged(random_layer(2, 1, 1000, D), page=16, pages=3)
    assert cache.held == 63 and cache.length - 62 * 16 == 8
