"""What a decoded token launches on a GPU where the cache is more than keys and values: counted per layer."""

import pytest

from kvbench.evaluation.settings import Setting, build_settings
from tests.support import launch_counts as count
from tests.support.config import method_configs
from tests.support.every_method import small

pytestmark = pytest.mark.heavy

N = 100
FULL = 43  # kernels of FullKV, of which attention and the cache are 5
LAYERS = {
    "kivi": ("kivi", (), FULL),
    "kivi 2 bit": ("kivi_longbench_2bit", (), FULL),
    "snapkv kivi": ("snapkv_kivi4", (), FULL),
    "minicache": ("minicache", ("method.minicache.storage.start=0",), 46),
    "minicache kivi": ("minicache_kivi4", ("method.minicache_kivi4.storage.start=0",), 56),
    "h2o update": ("h2o", ("method.h2o.decode=update",), 60),
    "evict": ("streaming_llm", ("method.streaming_llm.decode=evict",), 46),
    "roll": ("streaming_llm", ("method.streaming_llm.decode=evict", "method.streaming_llm.rope=rolling"), 56),
    "pooling": ("pooling_merge", (), 60),
    "simlayerkv decode kivi": ("simlayerkv_decode_kivi4", (), FULL),
}


def setting(name: str, overrides: tuple[str, ...]) -> Setting:
    (one,) = build_settings({name: small(method_configs(name, overrides=overrides)[name])}, 0.3, None)
    return one


@pytest.mark.parametrize("name", LAYERS)
def test_a_token_launches_at_most_60_kernels_a_layer_and_waits_for_nothing(name):
    preset, overrides, most = LAYERS[name]
    one = setting(preset, overrides)
    typical, mean = count.decoding_per_layer(N, lambda layers: [(one.method, one.budget_at(N, layers))])
    assert typical.kernels <= most <= 60, typical.names
    assert mean.kernels <= 60
    assert (mean.waits, mean.uploads) == (0, 0), mean.names


def test_equally_long_kivi_caches_of_a_batch_launch_as_many_kernels_as_one():
    one = setting("kivi", ())
    alone, several = (
        count.decoding_per_layer(N, lambda layers, rows=rows: [(one.method, one.budget_at(N, layers))] * rows)[0]
        for rows in (1, 4)
    )
    assert several.kernels <= alone.kernels and several.waits == several.uploads == 0


@pytest.mark.parametrize("name", LAYERS)
def test_compression_waits_at_most_once_a_layer(name):
    preset, overrides, _ = LAYERS[name]
    one = setting(preset, overrides)
    counts = count.per_layer(lambda model: count.compression_counts(one, model, N))
    assert counts.waits <= 1, counts.names
