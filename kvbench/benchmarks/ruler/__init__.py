"""RULER: samples generated as the official generator does, with the model's own tokenizer."""

from kvbench.benchmarks.ruler.benchmark import Ruler

__all__ = ["Ruler"]
