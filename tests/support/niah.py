"""Needle benchmarks by name."""

from kvbench.benchmarks import Benchmark, haystack
from kvbench.benchmarks.niah import placement
from kvbench.configuration.conf import options
from kvbench.utils.targets import build
from tests.support.runs import compose

VARIANTS = [name for name in options("benchmark") if name.startswith(("niah", "passkey"))]


TESTERS = ["niah_kamradt", "niah_pyramidkv", "niah_pyramidkv_mistral", "niah_kvpress"]


def benchmark(name: str, *overrides: str):
    return build(
        compose(f"benchmark={name}", *(f"benchmark.{override}" for override in overrides)).benchmark, name, Benchmark
    )


def short(name: str, *overrides: str):
    return benchmark(name, "lengths=[400,700]", "depths=[0,40,75,100]", *overrides)


def text_tokens(embedded, count: int) -> list[int]:
    return placement.take(haystack.generated(0), embedded.tokenizer, count)
