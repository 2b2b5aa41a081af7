"""Triton kernels, one file per operator of `kvbench.ops`; imported only where they run, since Triton is optional.

Each file NAME.py has a function NAME with the arguments and results of its torch reference. Kernels run on NVIDIA GPUs
from compute capability 8.0 (Ampere) on, and compile for AMD GPUs from CDNA2 on.
"""
