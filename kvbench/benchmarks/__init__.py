"""Benchmarks: where samples and scores come from. YAML files in conf/benchmark name what is here."""

from kvbench.benchmarks.base import Benchmark, Sample
from kvbench.benchmarks.niah import NeedleInAHaystack

__all__ = ["Benchmark", "NeedleInAHaystack", "Sample"]
