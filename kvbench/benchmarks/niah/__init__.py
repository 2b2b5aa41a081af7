"""Needle in a Haystack: our own needles."""

from kvbench.benchmarks.niah.own import NeedleInAHaystack

__all__ = ["NeedleInAHaystack"]
