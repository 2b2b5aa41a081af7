"""Results: records, the manifest of the run that made them, and how to load them."""

from kvbench.results.load import load

__all__ = ["load"]
