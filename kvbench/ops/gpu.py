"""The capabilities of a GPU and its software, tested once for each device and never taken from a list of models."""

from functools import cache
from importlib import import_module

import torch

OLDEST = (8, 0)  # compute capability of the oldest NVIDIA GPUs for which the kernels and flash attention are written
OLDEST_CDNA = "gfx90a"  # the name of CDNA2's architecture; later ones of AMD's data-centre GPUs have larger names


@cache
def is_recent(device: torch.device) -> bool:
    """Whether this is a GPU of NVIDIA from Ampere on. Capabilities of AMD's GPUs mean something else."""
    return not torch.version.hip and bool(torch.cuda.get_device_capability(device) >= OLDEST)


@cache
def runs_kernels(device: torch.device) -> bool:
    """Whether the Triton kernels are for this GPU: NVIDIA's from Ampere on, and AMD's from CDNA2 on (wavefronts of 64),
    for which they compile without scratch memory (`tests/kernels/test_compiled_launches.py`). They have run on neither.
    """
    if not torch.version.hip:
        return is_recent(device)
    properties = torch.cuda.get_device_properties(device)
    return properties.warp_size == 64 and str(properties.gcnArchName).split(":")[0] >= OLDEST_CDNA


@cache
def multiprocessors(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


@cache
def build_error(device: torch.device) -> str | None:
    """Why Triton cannot build a kernel here, in one line; None if it can.

    Triton needs a C compiler and Python's headers, which slim images lack, and reports that only at the first launch.
    So the smallest kernel is built and run, once per process.
    """
    try:
        with torch.cuda.device(device):
            import_module("kvbench.ops.kernels.smallest").run(device)
    except Exception as error:  # compilers, linkers and drivers raise anything
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return lines[0] if lines else type(error).__name__
    return None
