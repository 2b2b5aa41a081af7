"""InfiniteBench: 12 tasks beyond 100k tokens, with the official prompts, truncation and metrics."""

from kvbench.benchmarks.infinitebench.benchmark import InfiniteBench

__all__ = ["InfiniteBench"]
