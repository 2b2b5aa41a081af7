"""The base of every method: from a prefill state to layer caches, layer by layer where possible."""
