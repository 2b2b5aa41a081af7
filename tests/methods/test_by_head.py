"""Storages of equally long heads under selections of different numbers of tokens per head."""

from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from kvbench.evaluation.cache_checks import check_bytes
from kvbench.methods import Fp8, ThinK, TurboQuant
from kvbench.methods.selection import Selection
from kvbench.methods.storage.base import require_ragged
from tests.support import launch_counts
from tests.support.every_method import setting
from tests.support.tiny import random_layer

KV, HEADS, N, DIM = 2, 6, 60, 8
STORAGES = {scale: Fp8(scale) for scale in ("unit", "head", "token", "channel")} | {
    "turboquant": TurboQuant(),
    "think": ThinK(recent=4),
}


@pytest.mark.parametrize("heads", [KV, HEADS])
@pytest.mark.parametrize("name", STORAGES)
def test_each_head_is_what_it_is_alone(name, heads):
    layer = random_layer(HEADS, KV, N, DIM)
    chosen = torch.rand(heads, N) < torch.linspace(0.9, 0.1, heads)[:, None]
    chosen[-1] = False  # a head may keep nothing
    cache = STORAGES[name].store(layer, Selection(None, 20, chosen=chosen))
    group = HEADS // heads
    for _ in range(3):
        query, key, value = (torch.randn(1, count, 1, DIM) for count in (HEADS, KV, KV))
        cache.update(key, value)
        out = cache.attend(query, layer.scaling)
    check_bytes([cache])
    assert cache.kept.per_head == tuple(chosen.sum(1).tolist()) and cache.get_seq_length() == N + 3
    for number, head in enumerate(cache.parts):
        alone = head.attend(query[:, number * group : (number + 1) * group], layer.scaling)
        assert_close(out[:, number * group : (number + 1) * group], alone)
    assert cache.filled_bytes == cache.read_bytes <= cache.nbytes


@pytest.mark.parametrize("heads", [KV, HEADS])
@pytest.mark.parametrize("name", STORAGES)
def test_heads_of_equal_numbers_attend_as_an_equal_selection(name, heads):
    layer = random_layer(HEADS, KV, N, DIM)
    equal = Selection(torch.stack([torch.randperm(N)[:25].sort().values for _ in range(heads)]), 25)
    ragged = Selection(None, 25, chosen=equal.mask(layer).flatten(0, 1))
    outputs = []
    for selection in (equal, ragged):
        cache = STORAGES[name].store(layer, selection)
        query, key, value = (
            torch.randn(1, count, 1, DIM, generator=torch.Generator().manual_seed(1)) for count in (HEADS, KV, KV)
        )
        cache.update(key, value)
        outputs.append(cache.attend(query, layer.scaling))
        assert cache.kept.r1 == 25 / N
    assert_close(*outputs)


@pytest.mark.heavy
@pytest.mark.parametrize("name", ["head", "turboquant", "think"])
def test_compression_waits_once_and_decoding_never(name):
    class Ragged(type(setting("full").method)):
        def compress(self, state, budget):
            norms = [layer.values.float().norm(dim=-1) for layer in state.layers]
            pairs = zip(state.layers, norms, strict=True)
            return [STORAGES[name].store(layer, Selection(None, budget, chosen=x > x.mean())) for layer, x in pairs]

    method = Ragged()
    method.needs = STORAGES[name].needs
    one = replace(setting("full"), method=method)
    compression = launch_counts.per_layer(lambda model: launch_counts.compression_counts(one, model, 50))
    assert compression.waits == 1, compression.names
    _, mean = launch_counts.decoding_per_layer(50, lambda _: [(method, 50)], tokens=3)
    assert mean.waits == mean.uploads == 0, mean.names


def test_they_are_not_refused():
    for storage in STORAGES.values():
        require_ragged(storage, "AdaKV")
