"""Benchmarks: sources of samples and scores. The YAML files in conf/benchmark name the classes of all files below.

They are here by their names; `X as X` says that a name is public.
"""

from typing import Any

from kvbench.benchmarks.base import Benchmark as Benchmark
from kvbench.benchmarks.base import Sample as Sample
from kvbench.benchmarks.base import Sampling as Sampling
from kvbench.benchmarks.base import Turn as Turn
from kvbench.benchmarks.serve import Serve as Serve
from kvbench.benchmarks.speed import Speed as Speed
from kvbench.benchmarks.text import Text as Text
from kvbench.utils.classes_by_name import class_below, places


def __getattr__(name: str) -> Any:
    return class_below(__name__, name)


def __dir__() -> list[str]:
    return sorted({*globals(), *places(__name__)})
