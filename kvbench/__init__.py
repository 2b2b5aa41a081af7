"""kvbench: compare KV-cache compression methods on the same prompts, budgets and bytes."""

__version__ = "0.2.0"
