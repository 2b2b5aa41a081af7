"""RULER: samples generated as the official generator does, with the model's own tokenizer; and kvpress's samples."""

from kvbench.benchmarks.ruler.benchmark import Ruler
from kvbench.benchmarks.ruler.kvpress_samples import KVPressRuler

__all__ = ["KVPressRuler", "Ruler"]
