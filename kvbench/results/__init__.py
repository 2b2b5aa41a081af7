"""Results: records, the manifest of the run that made them, and how to load them."""

from kvbench.results.findings import Finding, check
from kvbench.results.load import gather, load
from kvbench.results.runs import manifests

__all__ = ["Finding", "check", "gather", "load", "manifests"]
