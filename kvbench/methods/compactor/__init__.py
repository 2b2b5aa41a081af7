"""Compactor: leverage scores and non-causal attention."""
