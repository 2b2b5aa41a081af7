"""Registers that the compiler may give a thread of a kernel, as an option of its launch."""

import torch


def most_registers(count: int) -> dict[str, int]:
    """For kernels that the compiler, left alone, gives fewer than they need, and then spills 8 to 24 bytes a thread.

    `count` has been tried: below it some architecture or version of Triton spills. AMD's GPUs have no such option.
    """
    return {} if torch.version.hip else {"maxnreg": count}
