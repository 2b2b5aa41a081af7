"""SCBench: several questions about one long context, in three ways to share its cache."""

from kvbench.benchmarks.scbench.benchmark import SCBench

__all__ = ["SCBench"]
