"""Attention Matching: keys chosen, biases and values fitted to reference attention."""
