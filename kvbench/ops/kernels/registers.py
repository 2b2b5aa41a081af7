"""The limit of registers per thread, as an option of a kernel's launch."""

import torch


def most_registers(count: int) -> dict[str, int]:
    """The option for kernels that spill 8 to 24 bytes per thread with the default limit.

    With fewer than `count`, some architecture or version of Triton spills (tested). AMD GPUs have no such option.
    """
    return {} if torch.version.hip else {"maxnreg": count}
