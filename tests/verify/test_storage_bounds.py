"""Bounds of storages: never above what a storage really takes."""

import pytest

from kvbench.verify.storage_bounds import least_share


@pytest.mark.parametrize(
    "storage, share",
    [
        ({"_target_": "kvbench.methods.Dense"}, 1.0),
        ({"_target_": "kvbench.methods.Fp8"}, 0.5),
        ({"_target_": "kvbench.methods.Kivi", "bits": 2}, 0.125),
        ({"_target_": "kvbench.methods.Kivi", "key_bits": 4, "value_bits": 2}, 0.125),
        ({"_target_": "kvbench.methods.Ggml", "k": "q8_0", "v": "q4_0"}, 0.375),
        ({"_target_": "kvbench.methods.Microscaling", "k": "mxfp6_e2m3", "v": "nvfp4"}, 0.3125),
        ({"_target_": "kvbench.methods.TurboQuant", "bits": 3, "value_bits": None}, 0.1875),
        ({"_target_": "kvbench.methods.KVQuant", "bits": 3}, 0.1875),
        ({"_target_": "kvbench.methods.GEAR", "bits": 2}, 0.125),
        ({"_target_": "kvbench.methods.ThinK", "share": 0.4}, 0.8),
        ({"_target_": "kvbench.methods.MiniCache", "storage": {"_target_": "kvbench.methods.Dense"}}, 0.5),
        ({"_target_": "kvbench.methods.Codebook"}, 0.0),
        ({}, 0.0),
    ],
)
def test_bounds_in_two_bytes_an_element(storage, share):
    assert least_share(storage, 2) == share
