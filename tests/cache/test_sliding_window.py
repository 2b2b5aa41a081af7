"""A sliding layer holds, token by token and to the byte, what transformers' own holds."""

import copy

import pytest
import torch
from transformers.cache_utils import DynamicSlidingWindowLayer

from kvbench.cache.sliding_window import SLACK, ChunkLayer, WindowLayer, fixed_bytes
from kvbench.ops.attention import dense_attention, sliding_attention

WINDOW, HEADS, WIDTH = 7, 2, 8


def vectors(t: int, heads: int = HEADS, seed: int = 0) -> torch.Tensor:
    return torch.randn(1, heads, t, WIDTH, generator=torch.Generator().manual_seed(seed))


def reference(query, keys, values, window):
    """Attention with a mask over everything."""
    q, length = query.shape[2], keys.shape[2]
    place, at = torch.arange(length), torch.arange(length - q, length)[:, None]
    seen = (place <= at) & (place > at - window)
    group = query.shape[1] // keys.shape[1]
    keys, values = (x.repeat_interleave(group, dim=1) for x in (keys, values))
    logits = (query @ keys.mT * 0.3).masked_fill(~seen, float("-inf"))
    return logits.softmax(dim=-1) @ values


@pytest.mark.parametrize("steps", [[3, 1, 1, 1, 1, 1, 1], [7, 1], [6, 1], [30, *[1] * 80], [10, 9, 1, 5, 1]])
def test_it_holds_and_answers_as_transformers_does(steps):
    layer, theirs = WindowLayer(WINDOW), DynamicSlidingWindowLayer(WINDOW)
    keys = values = vectors(0)
    for number, t in enumerate(steps):
        new, query = vectors(t, seed=number), vectors(t, 4, seed=100 + number)
        keys, values = torch.cat([keys, new], dim=2), torch.cat([values, -new], dim=2)
        theirs.update(new, -new)
        layer.update(new, -new)
        torch.testing.assert_close(layer.attend(query, 0.3), reference(query, keys, values, WINDOW))
        held = [store.view[:, :, -layer.length :] for store in (layer.k, layer.v)]
        assert torch.equal(held[0], theirs.keys) and torch.equal(held[1], theirs.values)
        assert layer.seen == layer.get_seq_length() == sum(steps[: number + 1])
        assert layer.filled_bytes == 2 * theirs.keys.nbytes == fixed_bytes([layer])
        assert layer.nbytes <= layer.filled_bytes + 2 * SLACK * 2 * HEADS * WIDTH * 4  # room and slack


def test_what_a_prompt_leaves_owns_no_more_than_its_bytes():
    layer = WindowLayer(WINDOW)
    layer.update(vectors(40), vectors(40))
    layer.attend(vectors(40, 4), 0.3)
    cut = layer.cut(40)
    assert cut.nbytes == cut.filled_bytes == 2 * (WINDOW - 1) * HEADS * WIDTH * 4 and cut.seen == 40


def test_a_whole_one_can_be_cut_where_the_context_ends():
    layer = WindowLayer(WINDOW, whole=True)
    keys = vectors(40)
    layer.update(keys, keys)
    layer.attend(vectors(40, 4), 0.3)
    cut = layer.cut(31)
    assert cut.seen == 31 and torch.equal(cut.k.view, keys[:, :, 31 - WINDOW + 1 : 31])
    with pytest.raises(ValueError, match="needs some of the first 30 tokens"):
        cut.cut(30)


def test_a_copy_forgets_nothing_of_what_the_original_holds():
    layer = WindowLayer.from_tokens(vectors(40)[0], vectors(40)[0], WINDOW, 40)
    before = [store.view.clone() for store in (layer.k, layer.v)]
    twin = copy.deepcopy(layer)
    twin.update(vectors(3, seed=5), vectors(3, seed=5))
    twin.attend(vectors(3, 4), 0.3)
    assert all(torch.equal(a, b.view) for a, b in zip(before, (layer.k, layer.v), strict=True)) and layer.seen == 40


@pytest.mark.parametrize("q", [1, 5, 600, 1100])
def test_tiles_of_queries_give_what_one_mask_gives(q):
    keys, values, query = vectors(1100), vectors(1100, seed=1), vectors(q, 4, seed=2)
    out = sliding_attention(query, keys, values, 0.3, 20)
    torch.testing.assert_close(out, reference(query, keys, values, 20))


def test_a_window_that_holds_everything_is_plain_attention():
    keys, query = vectors(30), vectors(4, 4, seed=2)
    assert torch.equal(sliding_attention(query, keys, keys, 0.3, 30), dense_attention(query, keys, keys, 0.3))


def chunk_reference(query, keys, values):
    """Attention with a mask over everything that is not of a token's own chunk."""
    q, length = query.shape[2], keys.shape[2]
    place, at = torch.arange(length), torch.arange(length - q, length)[:, None]
    seen = (place <= at) & (place // WINDOW == at // WINDOW)
    group = query.shape[1] // keys.shape[1]
    keys, values = (x.repeat_interleave(group, dim=1) for x in (keys, values))
    logits = (query @ keys.mT * 0.3).masked_fill(~seen, float("-inf"))
    return logits.softmax(dim=-1) @ values


@pytest.mark.parametrize(
    "steps", [[3, 1, 1, 1, 1, 1, 1], [7, 1], [14, 1, 6], [6, 1, 1], [30, *[1] * 80], [10, 9, 1, 5, 1]]
)
def test_a_layer_of_chunks_attends_to_its_own_and_holds_what_is_left_of_it(steps):
    layer, keys, values = ChunkLayer(WINDOW), vectors(0), vectors(0)
    for number, t in enumerate(steps):
        new, query = vectors(t, seed=number), vectors(t, 4, seed=100 + number)
        keys, values = torch.cat([keys, new], dim=2), torch.cat([values, -new], dim=2)
        layer.update(new, -new)
        torch.testing.assert_close(layer.attend(query, 0.3), chunk_reference(query, keys, values))
        assert layer.filled_bytes == layer.seen % WINDOW * 2 * HEADS * WIDTH * 4
    cut = layer.cut(layer.seen)
    query, new = vectors(9, 4, seed=7), vectors(9, seed=8)
    for one in (layer, cut):
        one.update(new, -new)
    assert torch.equal(cut.attend(query, 0.3), layer.attend(query, 0.3))


def test_a_layer_of_chunks_can_be_cut_where_the_context_ends():
    layer, keys = ChunkLayer(WINDOW, whole=True), vectors(40)
    layer.update(keys, keys)
    layer.attend(vectors(40, 4), 0.3)
    for end in (28, 31, 40):
        cut, query, new = layer.cut(end), vectors(1, 4, seed=3), vectors(1, seed=4)
        assert isinstance(cut, ChunkLayer) and cut.length == end % WINDOW
        cut.update(new, new)
        every = torch.cat([keys[:, :, :end], new], dim=2)
        torch.testing.assert_close(cut.attend(query, 0.3), chunk_reference(query, every, every))
