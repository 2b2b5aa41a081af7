"""Their Triton kernels."""
