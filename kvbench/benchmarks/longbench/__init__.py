"""LongBench: tasks as data, templates and rows from their official sources, prompts as the official code makes them."""

from kvbench.benchmarks.longbench.benchmark import LongBench, LongBenchE

__all__ = ["LongBench", "LongBenchE"]
