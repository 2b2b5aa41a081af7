"""Presses of an installed kvpress as methods."""

from kvbench.integrations.kvpress.method import KVPress

__all__ = ["KVPress"]
