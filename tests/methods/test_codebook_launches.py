"""What the codebook cache makes a GPU do, counted on fake devices: few kernels a token, one wait a compressed layer."""

from functools import cache

import pytest

from kvbench.methods import SpindleKV
from kvbench.methods.storage import codebook
from tests.support.every_method import setting
from tests.support.launch_counts import compression_counts, decoding_per_layer, per_layer

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


def test_compressing_waits_once_for_all_layers_or_for_as_many_as_fit(monkeypatch):
    one = setting("spindlekv_paper", 0.5)

    def waits() -> float:
        counts = per_layer(lambda model: compression_counts(one, model, 100))
        assert counts.names["wait: tolist"] + counts.names["wait: _local_scalar_dense"] == counts.waits
        return counts.waits

    assert waits() == 0
    monkeypatch.setattr(codebook, "AT_ONCE", 1)
    assert waits() == 1
