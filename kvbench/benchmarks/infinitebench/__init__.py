"""InfiniteBench: 12 tasks of 44k to 2M tokens on average, with the official prompts, truncation and metrics."""

from kvbench.benchmarks.infinitebench.benchmark import InfiniteBench

__all__ = ["InfiniteBench"]
