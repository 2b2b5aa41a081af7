"""Methods for tests: one that takes its time, one that fails as a GPU without memory does, one whose values are NaN."""

import os
import time
from dataclasses import dataclass

from tests.support.my_method import MyMethod


@dataclass
class Slow(MyMethod):
    """As long per setting as the environment says, which changes no record."""

    def compress(self, state, budget):
        time.sleep(float(os.environ.get("KVBENCH_TEST_SECONDS", 0)))
        return super().compress(state, budget)


@dataclass
class Failing(MyMethod):
    """Fails on prompts of 400 tokens and more."""

    def compress(self, state, budget):
        if len(state.layers[0].keys[0]) >= 400:
            raise RuntimeError("out of memory,\nas it were")
        return super().compress(state, budget)


@dataclass
class Poisoned(MyMethod):
    """Its caches hold NaN on the prompts of the second needle."""

    def compress(self, state, budget):
        caches = super().compress(state, budget)
        if len(state.layers[0].keys[0]) % 2:
            for cache in caches:
                cache.v.view.fill_(float("nan"))
        return caches
