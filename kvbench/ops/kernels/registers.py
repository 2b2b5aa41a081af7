"""Registers that the compiler may give a thread of a kernel, as an option of its launch."""

import torch


def most_registers(count: int) -> dict[str, int]:
    """For kernels that get too few registers by default, so that the compiler spills 8 to 24 bytes per thread.

    With fewer than `count`, some architecture or version of Triton spills (tried). AMD's GPUs have no such option.
    """
    return {} if torch.version.hip else {"maxnreg": count}
