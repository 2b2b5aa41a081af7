"""Methods for tests: one that takes its time, one that fails as a GPU without memory does, one whose values are NaN."""

import os
import time
from dataclasses import dataclass

from tests.support.my_method import MyMethod


@dataclass
class Slow(MyMethod):
    """Waits per setting as long as the environment says, or for a file; one task of an array may fail. Its records are
    the same whatever it does."""

    def compress(self, state, budget):
        if os.environ.get("KVBENCH_TEST_FAILING") == os.environ.get("SLURM_ARRAY_TASK_ID", "none"):
            raise RuntimeError("out of memory,\nas it were")
        time.sleep(float(os.environ.get("KVBENCH_TEST_SECONDS", 0)))
        while not os.path.exists(os.environ.get("KVBENCH_TEST_FILE", "/")):
            time.sleep(0.05)
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
