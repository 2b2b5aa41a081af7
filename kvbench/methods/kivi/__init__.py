"""KIVI: keys quantised per channel, values per token."""
