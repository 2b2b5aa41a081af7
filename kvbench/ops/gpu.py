"""The capabilities of a GPU and its software, tested once per device, not looked up in a list of models."""

from functools import cache
from importlib import import_module

import torch

OLDEST = (8, 0)  # compute capability of the oldest NVIDIA GPUs for which the kernels and flash attention are written
OLDEST_CDNA = "gfx90a"  # CDNA2; later architectures of AMD's data-centre GPUs have larger names


@cache
def is_recent(device: torch.device) -> bool:
    """Whether this is an NVIDIA GPU from Ampere on. Capabilities of AMD GPUs have another meaning."""
    return not torch.version.hip and bool(torch.cuda.get_device_capability(device) >= OLDEST)


@cache
def runs_kernels(device: torch.device) -> bool:
    """Whether the Triton kernels support this GPU: NVIDIA from Ampere on, AMD from CDNA2 on (wavefronts of 64). For
    AMD they compile without scratch memory (`tests/kernels/test_compiled_launches.py`) but have not run."""
    if not torch.version.hip:
        return is_recent(device)
    properties = torch.cuda.get_device_properties(device)
    return properties.warp_size == 64 and str(properties.gcnArchName).split(":")[0] >= OLDEST_CDNA


@cache
def multiprocessors(device: torch.device) -> int:
    return int(torch.cuda.get_device_properties(device).multi_processor_count)


@cache
def build_error(device: torch.device) -> str | None:
    """Why Triton cannot build a kernel on this machine, in one line; None if it can.

    Triton needs a C compiler and Python's headers, which slim images lack, and reports their absence only at the first
    launch. So the smallest kernel is built and run, once per process.
    """
    try:
        with torch.cuda.device(device):
            import_module("kvbench.ops.kernels.smallest").run(device)
    except Exception as error:  # compilers, linkers and drivers raise anything
        lines = [line.strip() for line in str(error).splitlines() if line.strip()]
        return lines[0] if lines else type(error).__name__
    return None
