"""Registers that the compiler may give a thread of a kernel, as an option of its launch."""

import torch


def most_registers(count: int) -> dict[str, int]:
    """For kernels that the compiler, left alone, gives fewer than they need, and then spills 8 bytes a thread.

    On AMD's GPUs there is no such option.
    """
    return {} if torch.version.hip else {"maxnreg": count}
