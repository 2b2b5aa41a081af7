"""Triton kernels of KIVI's operators."""
