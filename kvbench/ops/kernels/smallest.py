"""The smallest kernel: whether Triton can build and launch anything on this machine."""

import torch
import triton
import triton.language as tl


@triton.jit
def _one(out: tl.tensor) -> None:
    tl.store(out, 1)


def run(device: torch.device) -> None:
    """Raises whatever Triton raises, and RuntimeError where the kernel did not do what it says."""
    out = torch.zeros(1, dtype=torch.int32, device=device)
    _one[(1,)](out)
    if out.item() != 1:
        raise RuntimeError("a kernel was launched and did not run")
