"""Triton kernels of MiniCache's operators."""
