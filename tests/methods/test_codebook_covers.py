"""Codebooks of several layers at once, and what is known of their caches before these are packed."""

import pytest
import torch

from kvbench.cache.base import held_bytes
from kvbench.methods import Codebook
from kvbench.methods.selection import Selection
from kvbench.methods.spindlekv.codebook import coding, storage
from kvbench.methods.spindlekv.codebook.coding import cover_bytes
from kvbench.methods.spindlekv.layer_groups import AT_ONCE, groups, set_groups
from tests.support.every_method import state

CPU = torch.device("cpu")


def layers_and_selections(dtype=torch.float32):
    """Layers of which different numbers of tokens are kept, equally many in a head or not; the last is of another kind,
    as its query heads select together."""
    generator = torch.Generator().manual_seed(0)
    layers = state(60, dtype).layers[:4]
    chosen = torch.rand(6, 60, generator=generator) < 0.4
    some = torch.stack([torch.arange(60 - k, 60) for k in [35] * 6])
    mixed = torch.stack([torch.randperm(60, generator=generator)[:20].sort().values for _ in range(6)])
    return layers, [
        Selection(some, 35),
        Selection(None, 24, chosen=chosen),
        Selection(mixed, 20),
        Selection.everything(layers[3]),
    ]


@pytest.fixture
def at_once(monkeypatch):
    """All layers of a kind at once, as on a GPU."""
    monkeypatch.setattr(storage, "layer_groups", lambda layers, sizes, kinds: groups(sizes, kinds, sum(sizes)))


@pytest.mark.parametrize("scope", ["kv_group", "layer", "head"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
def test_layers_coded_together_are_what_each_is_alone(scope, dtype, at_once):
    layers, selections = layers_and_selections(dtype)
    storage = Codebook(window=8, scope=scope, theta_k=0.5, theta_v=0.5)
    covered = storage.cover_all(layers, selections)
    for numbers in (range(4), [0, 2, 3], [2, 1]):
        for number, cache in zip(numbers, storage.pack_all([covered[number] for number in numbers]), strict=True):
            alone = storage.store(layers[number], selections[number])
            assert cache.kept == alone.kept
            for one, other in zip(cache.tensors(), alone.tensors(), strict=True):
                assert torch.equal(one, other)


@pytest.mark.parametrize("scope", ["kv_group", "layer", "head"])
def test_covers_of_a_layers_heads_are_the_same_in_slices(scope, at_once, monkeypatch):
    layers, selections = layers_and_selections()
    codebook = Codebook(window=8, scope=scope, theta_k=0.5, theta_v=0.5)
    whole, calls = codebook.cover_all(layers, selections), []

    def in_slices(sets, size, device):
        calls.append(groups([size] * sets, [None] * sets, 2 * size))
        return calls[-1]

    monkeypatch.setattr(coding, "set_groups", in_slices)
    for one, other in zip(codebook.cover_all(layers, selections), whole, strict=True):
        assert one.sizes == other.sizes and one.kept == other.kept
        assert all(torch.equal(*pair) for pair in zip(one.keys + one.values, other.keys + other.values, strict=True))
    assert max(map(len, calls)) > 1 and all(part.stop - part.start <= 2 for parts in calls for part in parts)


def test_a_gpu_covers_as_many_heads_of_a_layer_at_once_as_may_be_held():
    """Heads of 128 channels: all eight of 32,768 tokens, and one after the other of 131,072, which took 18.8 GB."""
    cuda = torch.device("cuda")
    sizes = {n: cover_bytes(n, 128) for n in (32_768, 52_428, 131_072)}
    parts = {n: set_groups(8, size, cuda) for n, size in sizes.items()}
    assert [len(found) for found in parts.values()] == [1, 2, 8]
    for n, found in parts.items():
        assert all(len(range(8)[own]) * sizes[n] <= max(AT_ONCE, sizes[n]) for own in found)
    assert set_groups(8, sizes[131_072], CPU) == [slice(0, 8)]


@pytest.mark.parametrize("scope", ["kv_group", "layer", "head"])
@pytest.mark.parametrize("over", ["kv_heads", "query_heads"])
@pytest.mark.parametrize("reconstruct", [True, False])
@pytest.mark.parametrize("window", [0, 8])
def test_what_a_cover_says_is_what_the_packed_cache_holds(scope, over, reconstruct, window, at_once):
    """Its bytes, and formula 15, from its tensors."""
    layers, selections = layers_and_selections(torch.bfloat16)
    storage = Codebook(0.5, 0.5, scope, reconstruct, window, over)
    covered = storage.cover_all(layers, selections)
    caches = storage.pack_all(covered)
    for layer, selection, own, cache in zip(layers, selections, covered, caches, strict=True):
        assert own.nbytes == cache.nbytes == held_bytes([cache]) and own.kept is cache.kept
        mask, kept = selection.mask(layer), cache.kept
        unfolded = over == "query_heads" and mask.shape[1] > 1
        retained = mask.sum() if unfolded else mask.any(dim=1).sum()
        assert kept.retained == 2 * retained and kept.total == 2 * 60 * (6 if unfolded else 2)
        k, v, raw_rows = cache.k, cache.v, cache.raw
        vectors = len(k.entries) + len(v.entries) + len(raw_rows.keys) + len(raw_rows.values)
        assert kept.r2 == vectors / kept.retained
        width = (len(k.references) + len(v.references)) / max(2 * sum(cache.streams.tokens), 1)
        assert kept.r3 == 1 + 8 * width / 17 / 32
        raw = sum(cache.raw.windows) * (3 if unfolded else 1)
        coded = retained - raw if unfolded or scope != "head" else sum(cache.streams.tokens)
        assert kept.overhead == pytest.approx(float((width / 2 + reconstruct) / 32 * coded / retained))


def test_groups_of_layers_hold_as_many_bytes_as_they_may():
    assert groups([3, 3, 3, 9, 1, 1], [CPU] * 6, 6) == [slice(0, 2), slice(2, 3), slice(3, 4), slice(4, 6)]
    assert groups([3, 4], [CPU] * 2, 0) == [slice(0, 1), slice(1, 2)]
    assert groups([3, 4], [CPU] * 2, 7) == [slice(0, 2)] and groups([], [], 7) == []


def test_groups_of_layers_are_on_one_device():
    other = torch.device("cuda", 1)
    assert groups([1, 1, 1, 1], [CPU, CPU, other, other], 9) == [slice(0, 2), slice(2, 4)]
