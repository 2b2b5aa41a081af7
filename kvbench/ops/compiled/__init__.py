"""The inner loops of operators, compiled for the CPU by Numba.

A module has the name of its operator and a function of that name, which computes what the torch reference does, up to
the rounding of sums in another order. `kernels=auto` calls it on a CPU. In torch, attention of one decoded token over
packed codes is some fifty small operations, most of which take longer to start than to compute; here it is two loops.
"""
