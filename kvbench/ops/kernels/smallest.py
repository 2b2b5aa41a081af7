"""The smallest kernel: whether Triton can build and launch anything on this machine."""

import torch
import triton
import triton.language as tl


@triton.jit
def _write_one(out: tl.tensor) -> None:
    tl.store(out, 1)


def run(device: torch.device) -> None:
    """Build and run the kernel. Raises any error of Triton, and RuntimeError if the kernel had no effect."""
    out = torch.zeros(1, dtype=torch.int32, device=device)
    _write_one[(1,)](out)
    if out.item() != 1:
        raise RuntimeError("a kernel was launched but did not run")
