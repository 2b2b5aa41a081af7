"""What the tests of the codebook cache share: layers with something to merge, and attention written out."""

import torch

from kvbench.methods.selection import Selection
from kvbench.ops.rope import Rope
from tests.support.tiny import random_layer, tiny_model

ROPE = Rope.of(tiny_model())


def similar_layer(n=60, heads=6, kv_heads=2, dtype=torch.float32, seed=0, **more):
    """A layer whose vectors lie near a few directions, so that books are smaller than what they hold."""
    layer = random_layer(heads, kv_heads, n, dtype=dtype, seed=seed, rope=ROPE, **more)
    generator = torch.Generator().manual_seed(seed)
    for x, rotate in ((layer.keys, True), (layer.values, False)):
        centres = torch.randn(6, x.shape[2], generator=generator)
        plain = centres[torch.randint(6, x.shape[:2], generator=generator)] + 0.2 * x.float()
        x.copy_(ROPE.rotate(plain, torch.arange(n)) if rotate else plain)
    return layer


def mixed_selection(layer, k, seed=0):
    """Every query head keeps k tokens of its own and the last 8."""
    generator = torch.Generator().manual_seed(seed)
    context = layer.n - 8
    rows = [torch.randperm(context, generator=generator)[: k - 8].sort().values for _ in range(6)]
    tail = torch.arange(context, layer.n).expand(6, 8)
    return Selection(torch.cat([torch.stack(rows), tail], dim=1), k)


def attention_over(cache, query, scaling, tokens=None):
    """Attention of every query head over what the cache says its K and V are, written out."""
    keys, values, masks = cache.read_keys(), cache.read_values(), cache.masks()
    per_stream = query.shape[1] // len(keys)
    out = torch.empty_like(query)
    for head in range(query.shape[1]):
        stream = head // per_stream
        k, v = keys[stream], values[stream]
        if masks[stream] is not None:
            k, v = k[masks[stream][head % per_stream]], v[masks[stream][head % per_stream]]
        assert tokens is None or len(k) == tokens
        out[0, head] = (query[0, head] @ k.T * scaling).softmax(dim=-1) @ v
    return out


def decoded(cache, layer, count, seed=7):
    """Feed `count` tokens, alternating copies of prompt vectors (at new positions) and fresh ones."""
    generator = torch.Generator().manual_seed(seed)
    source = ROPE.rotate(layer.keys, -torch.arange(layer.n))
    fed = []
    for step in range(count):
        position = torch.tensor([cache.seen])
        if step % 2:
            plain, value = torch.randn(2, 2, 1, layer.keys.shape[2], generator=generator)
        else:
            plain, value = 1.7 * source[:, step : step + 1], 0.4 * layer.values[:, step : step + 1]
        key = ROPE.rotate(plain, position)
        cache.update(key[None], value[None])
        fed.append((plain, value, key))
    return fed
