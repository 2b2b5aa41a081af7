"""Evictions: a scoring, budgets of layers and heads, and a storage, put together."""
