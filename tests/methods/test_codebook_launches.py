"""What the codebook cache makes a GPU do, counted on fake devices: few kernels a token, one wait a compressed layer."""

from functools import cache

import pytest

from kvbench.methods import SpindleKV
from kvbench.methods.spindlekv import layer_groups
from kvbench.ops.operator import LAUNCHES
from tests.support.every_method import setting
from tests.support.launch_counts import compression_counts, counted_model, decoding_per_layer
from tests.support.launches import Counts

COVERS = 2 * LAUNCHES["greedy_covers"]  # kernels of a cover of keys and values
MOST_KERNELS = 60  # of one decoded token and layer; FullKV has 43


@cache
def token_counts(scope):
    return decoding_per_layer(100, lambda layers: [(SpindleKV(window=8, control=None, scope=scope), 50)])


@pytest.mark.heavy
@pytest.mark.parametrize("scope", ["kv_group", "layer", "head"])
def test_a_decoded_token_launches_few_kernels_and_waits_for_none(scope):
    for counts in token_counts(scope):  # of the median token, and the mean of all
        assert counts.kernels <= MOST_KERNELS
        assert counts.waits == counts.uploads == 0


@pytest.mark.heavy
def test_caches_of_several_ratios_launch_as_many_kernels_as_one():
    one, alone = token_counts("kv_group")
    several, mean = decoding_per_layer(
        100, lambda layers: [(SpindleKV(window=8, control=None), budget) for budget in (30, 50, 70, 90)]
    )
    assert (several.kernels, mean.waits, mean.uploads) == (one.kernels, 0, 0)
    assert mean.kernels <= alone.kernels + 10  # of moving together at the first token


def compression(preset: str, layers: int) -> Counts:
    return compression_counts(setting(preset, 0.3), counted_model(layers), 160)


def test_compressing_waits_once_and_a_search_once_for_each_try(monkeypatch):
    """Also where not all layers are worked on at the same time."""
    tries = compression("spindle", 4).names["greedy_covers"] / COVERS
    for at_once in (layer_groups.AT_ONCE, 1):
        monkeypatch.setattr(layer_groups, "AT_ONCE", at_once)
        for preset, waits in (("spindlekv_paper", 1), ("spindle", tries)):
            counts = compression(preset, 4)
            assert counts.waits == counts.names["wait: tolist"] == waits


def test_compressing_launches_little_for_each_layer_or_try():
    """What a layer adds is its scores, and reading and writing its keys and values; a try of the search reads them."""
    paper = compression("spindlekv_paper", 4)
    assert (paper - compression("spindlekv_paper", 2)).kernels / 2 <= 15
    search = compression("spindle", 4)
    tries = search.names["greedy_covers"] / COVERS
    assert (search.kernels - paper.kernels) / (tries - 1) <= COVERS + 40 + 2 * 4


def test_an_eviction_with_a_codebook_compresses_all_layers_at_once():
    four, two = (compression("snapkv_codebook", layers) for layers in (4, 2))
    assert (four - two).kernels / 2 <= 28 and four.waits == two.waits == 1
