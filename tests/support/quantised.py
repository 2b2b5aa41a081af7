"""Sequences quantised as KIVI does, plain attention over the rows that codes stand for, and what holds of storages."""

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.testing import assert_close

from kvbench.cache.base import LayerCache
from kvbench.cache.quantised.sequence import QuantisedKeys, QuantisedValues
from kvbench.methods import Eviction, Storage, WindowAttention
from kvbench.methods.kivi.quantised_attention import Stored
from kvbench.methods.selection import Selection
from kvbench.prefill import LayerState

# of attention over codes, beside attention in float64 over the restored rows, which 16 bits round once more
TOLERANCE = {torch.float32: {"atol": 2e-6, "rtol": 2e-6}, torch.bfloat16: {"atol": 2e-2, "rtol": 2e-2}}


def sequences(
    n: int, heads: int, head_dim: int, bits: int | tuple[int, int], group: int, ring: int, dtype=torch.float32, grown=0
):
    """Keys and values of n random tokens, the last `grown` of which came one by one; (key bits, value bits) or both."""
    each = bits if isinstance(bits, tuple) else (bits, bits)
    generator = torch.Generator().manual_seed(n + sum(each) // 2)
    made = []
    for kind, bits in zip((QuantisedKeys, QuantisedValues), each, strict=True):
        rows = torch.randn(heads, n, head_dim, generator=generator).to(dtype)
        sequence = kind(rows[:, : n - grown], bits, group, ring)
        for i in range(n - grown, n):
            sequence.append(rows[:, i : i + 1])
        made.append(sequence)
    return made


def arguments(query: Tensor, keys: QuantisedKeys, values: QuantisedValues, scaling: float) -> tuple:
    """Those of the operator `quantised_attention`."""
    lengths = torch.full((keys.heads,), keys.length, dtype=torch.int32)
    stored = (Stored(*each.tensors(), each.quantiser.bits) for each in (keys, values))
    return (query, *stored, lengths, keys.length, keys.limit, keys.quantiser.group, scaling)


def plain_attention(query: Tensor, keys: Tensor, values: Tensor, scaling: float) -> Tensor:
    """softmax(QKᵀ·scaling)V in float64, query [1, num_attention_heads, 1, head_dim], keys [heads, n, head_dim]."""
    grouped = query.double().view(keys.shape[0], -1, query.shape[-1])
    weights = (grouped @ keys.double().mT * scaling).softmax(dim=-1)
    return (weights @ values.double()).view(query.shape).float()


def check_attention(
    storage: Storage, granularity: str, layer: LayerState, tokens: int = 3
) -> tuple[LayerCache, Tensor]:
    """Attention over a layer's codes, after decoded tokens, is that over the rows that they stand for.

    Returns the layer's cache, and the last token's value [1, num_key_value_heads, 1, head_dim].
    """
    dtype, width = layer.keys.dtype, layer.keys.shape[2]
    method = Eviction(scoring=WindowAttention(8), granularity=granularity, storage=storage)
    cache = method.compress_layer(layer, 0, 1, layer.n - 10)
    for _ in range(tokens):
        query, key, value = (torch.randn(1, heads, 1, width).to(dtype) for heads in (6, 2, 2))
        cache.update(key, value)
        out = cache.attend(query, 0.25)
    assert out.dtype == dtype
    assert_close(out.float(), plain_attention(query, cache.k.read(), cache.v.read(), 0.25), **TOLERANCE[dtype])
    return cache, value


def check_heads_alone(storage: Storage, layer: LayerState) -> None:
    """Heads of a layer, 6 over 2 KV heads, which keep different numbers of tokens are what each is alone."""
    chosen = torch.rand(2, layer.n, generator=torch.Generator().manual_seed(2)) < torch.tensor([[0.9], [0.0]])
    cache = storage.store(layer, Selection(None, 20, chosen=chosen))
    query, key, value = (torch.randn(1, heads, 1, layer.keys.shape[2]) for heads in (6, 2, 2))
    cache.update(key, value)
    out = cache.attend(query, layer.scaling)
    for number, head in enumerate(cache.parts):
        own = slice(number * 3, number * 3 + 3)
        assert_close(out[:, own], head.attend(query[:, own], layer.scaling))


def check_own_memory(caches: Sequence[LayerCache], layers: Sequence[LayerState]) -> None:
    """No cache holds memory of the prefill state."""
    shared = {x.untyped_storage().data_ptr() for layer in layers for x in (layer.keys, layer.values)}
    for cache in caches:
        assert not shared & {x.untyped_storage().data_ptr() for x in cache.tensors() if x.numel()}
