"""BABILong: facts of bAbI hidden in books, questions about them, with the official prompts and metric."""

from kvbench.benchmarks.babilong.benchmark import BABILong

__all__ = ["BABILong"]
