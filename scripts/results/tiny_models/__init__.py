"""Tiny models of causal-LM classes, and what becomes of each: for `scripts.results.model_classes`."""
