"""NoLiMa: needles that share no words with their questions, from the user's copy of the data."""

from kvbench.benchmarks.nolima.benchmark import NoLiMa

__all__ = ["NoLiMa"]
