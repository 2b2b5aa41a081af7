"""Tensor functions without state: attention, rotary embeddings, packed bits and codes, number formats."""
