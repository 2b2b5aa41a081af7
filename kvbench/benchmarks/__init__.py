"""Benchmarks: where samples and scores come from. YAML files in conf/benchmark name what is here."""

from kvbench.benchmarks.base import Benchmark, Sample
from kvbench.benchmarks.longbench import LongBench, LongBenchE
from kvbench.benchmarks.niah import NeedleInAHaystack
from kvbench.benchmarks.ruler import Ruler
from kvbench.benchmarks.speed import Speed

__all__ = ["Benchmark", "LongBench", "LongBenchE", "NeedleInAHaystack", "Ruler", "Sample", "Speed"]
