"""Loops of operators, compiled for the CPU by Numba.

A module has the name of its operator and a function of that name, which computes the same as the torch reference.
`kernels=auto` calls it on a CPU.
"""
