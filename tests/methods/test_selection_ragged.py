"""Selections of different numbers of tokens per head, in every storage that takes them."""

from dataclasses import replace

import pytest
import torch
from pytest import approx
from torch.testing import assert_close

from kvbench.cache.kept_positions import chosen_positions, kept_positions
from kvbench.cache.reserve_ratio import ReserveRatio
from kvbench.errors import UserError
from kvbench.evaluation.record import per_head
from kvbench.methods import Method
from kvbench.methods.kivi.storage import Kivi
from kvbench.methods.minicache.storage import MiniCache
from kvbench.methods.selection import Selection
from kvbench.methods.spindlekv.codebook.storage import Codebook
from kvbench.methods.storage.base import require_ragged
from kvbench.methods.storage.dense import Dense
from tests.support import launch_counts
from tests.support.codebook_layers import similar_layer
from tests.support.every_method import setting

KV, HEADS, N, DIM = 2, 6, 60, 8
STORAGES = {
    "dense": Dense(),
    "union": Dense("union"),
    "codebook": Codebook(theta_k=1, theta_v=1, window=20),
    "codebook of a layer": Codebook(theta_k=1, theta_v=1, scope="layer", window=0),
    "codebook of a head": Codebook(theta_k=1, theta_v=1, scope="head"),
    "kivi": Kivi(8, group=8, residual=16),
}
CODED = 0.03  # what 8 bits may change in an output of about 1


def some_tokens(heads: int, seed: int = 0) -> torch.Tensor:
    """bool [heads, N]: the first head keeps every token, the last one none, the others some."""
    generator = torch.Generator().manual_seed(seed)
    chosen = torch.rand(heads, N, generator=generator) < torch.rand(heads, 1, generator=generator)
    chosen[0], chosen[-1] = True, False
    return chosen


def attention_over(query, keys, values, seen, scaling):
    """Of query [1, heads, 1, d] over the tokens `seen` [heads, len] of keys, values [num_key_value_heads, len, d]."""
    keys, values, seen = (x.repeat_interleave(HEADS // len(x), dim=0) for x in (keys, values, seen))
    weights = (query[0] @ keys.mT * scaling).masked_fill(~seen[:, None], float("-inf")).softmax(dim=-1)
    return weights @ values


@pytest.mark.parametrize("tokens", ["some", "no"])
@pytest.mark.parametrize("heads", [KV, HEADS])
@pytest.mark.parametrize("name", STORAGES)
def test_attention_is_that_of_a_full_cache_with_the_dropped_tokens_masked(name, heads, tokens):
    layer, chosen = similar_layer(), some_tokens(heads)
    if tokens == "no":
        chosen[:] = False
    cache = STORAGES[name].store(layer, Selection(None, 20, chosen=chosen))
    keys, values = layer.keys, layer.values
    error = CODED if name == "kivi" else 1e-5
    for step in range(20):  # over more than a block
        query, key, value = (
            torch.randn(1, count, 1, DIM, generator=torch.Generator().manual_seed(step)) for count in (HEADS, KV, KV)
        )
        cache.update(key, value)
        keys, values = torch.cat([keys, key[0]], 1), torch.cat([values, value[0]], 1)
        chosen = torch.cat([chosen, torch.ones(heads, 1, dtype=torch.bool)], 1)
        out = cache.attend(query, layer.scaling)[0]
        assert_close(out, attention_over(query, keys, values, chosen, layer.scaling), atol=error, rtol=error)
    assert cache.get_seq_length() == N + 20
    assert 0 < cache.read_bytes <= cache.filled_bytes <= cache.nbytes


@pytest.mark.parametrize("heads", [KV, HEADS])
@pytest.mark.parametrize("name", STORAGES)
def test_heads_of_equal_numbers_are_counted_and_held_as_an_equal_selection(name, heads):
    layer = similar_layer()
    indices = torch.stack([torch.randperm(N)[:25].sort().values for _ in range(heads)])
    equal = Selection(indices, 25)
    ragged = Selection(None, 25, chosen=equal.mask(layer).flatten(0, 1))
    caches = [STORAGES[name].store(layer, selection) for selection in (equal, ragged)]
    assert caches[0].filled_bytes == caches[1].filled_bytes and caches[0].read_bytes == caches[1].read_bytes
    ratios = [ReserveRatio.from_layers([cache.kept], cache.nbytes, layer.nbytes) for cache in caches]
    assert ratios[0] == ratios[1]
    assert caches[0].kept.positions == caches[1].kept.positions


@pytest.mark.parametrize("heads", [KV, HEADS])
def test_what_a_layer_kept_is_counted_head_by_head(heads):
    layer, chosen = similar_layer(), some_tokens(heads)
    kept = Dense().store(layer, Selection(None, 20, chosen=chosen)).kept
    assert kept.per_head == tuple(chosen.sum(1).tolist())
    assert kept.r1 == approx(chosen.float().mean().item()) and kept.nominal == 20
    assert kept.ratio_over == ("kv_heads" if heads == KV else "query_heads")
    assert per_head([kept, kept]) == [chosen.sum(1).tolist()] * 2
    equal = Selection.everything(layer).kept(layer)
    assert per_head([equal, kept]) == [None, chosen.sum(1).tolist()] and per_head([equal]) is None


def test_a_codebook_counts_the_heads_whose_vectors_r_counts():
    layer, chosen = similar_layer(), some_tokens(HEADS)
    over_kv, over_query = (
        Codebook(ratio_over=over).store(layer, Selection(None, 20, chosen=chosen)).kept
        for over in ("kv_heads", "query_heads")
    )
    union = chosen.unflatten(0, (KV, -1)).any(dim=1)
    assert over_kv.per_head == tuple(union.sum(1).tolist()) and over_kv.r1 == approx(union.float().mean().item())
    assert over_query.per_head == tuple(chosen.sum(1).tolist()) and over_query.r1 == approx(
        chosen.float().mean().item()
    )


class Ragged(Method):
    """Tokens with values of more than the mean length in the layer; every head its own."""

    def __init__(self, storage, heads):
        self.storage, self.heads = storage, heads

    def compress_layer(self, layer, index, num_layers, budget):
        norms = layer.values.float().norm(dim=-1).repeat_interleave(self.heads // layer.num_key_value_heads, dim=0)
        return self.storage.store(layer, Selection(None, budget, chosen=norms > norms.mean()))


@pytest.mark.heavy
@pytest.mark.parametrize("heads", [launch_counts.KV_HEADS, launch_counts.QUERY_HEADS])
@pytest.mark.parametrize("name", STORAGES)
def test_compression_waits_once_and_decoding_never(name, heads):
    method = Ragged(STORAGES[name], heads)
    one = replace(setting("full"), method=method)
    compression = launch_counts.per_layer(lambda model: launch_counts.compression_counts(one, model, 100))
    assert compression.waits == 1, compression.names
    token, _ = launch_counts.decoding_per_layer(100, lambda _: [(method, 100)], tokens=3)
    assert token.waits == token.uploads == 0 and token.kernels <= 60, token.names


def test_positions_of_a_mask_are_those_of_its_indices():
    layer = similar_layer()
    indices = torch.stack([torch.randperm(N)[:25].sort().values for _ in range(HEADS)])
    assert chosen_positions(Selection(indices, 25).mask(layer).flatten(0, 1)) == kept_positions(indices, N)


def test_a_storage_of_equally_many_tokens_per_head_is_refused():
    with pytest.raises(
        UserError, match="MiniCache holds the same number of tokens in every head of a layer: AdaKV keeps"
    ):
        require_ragged(MiniCache(), "AdaKV")
    for storage in STORAGES.values():
        require_ragged(storage, "AdaKV")
