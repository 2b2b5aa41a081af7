"""Triton kernels of the codebook's operators."""
