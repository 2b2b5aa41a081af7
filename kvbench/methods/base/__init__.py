"""What every method is: from a prefill state to layer caches, layer by layer where it can."""
