"""One layer of a batch, of caches without the other layers of their sequences."""

from kvbench.cache.batch_layer import BatchLayer


def batch_layer(caches) -> BatchLayer:
    return BatchLayer([[cache] for cache in caches])
