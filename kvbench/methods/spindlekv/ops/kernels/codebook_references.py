"""References of one, two or four bytes."""

import triton
import triton.language as tl


@triton.jit
def load_references(start: tl.tensor, token: tl.tensor, width: tl.tensor, end: tl.tensor) -> tl.tensor:
    """References int32 of tokens [n], stored little endian from `start` in `width` bytes each; 0 for tokens >= end."""
    place = start + token * width
    two = tl.where(width > 1, end, 0)
    four = tl.where(width > 2, end, 0)
    reference = tl.load(place, mask=token < end, other=0).to(tl.int32)
    reference += tl.load(place + 1, mask=token < two, other=0).to(tl.int32) << 8
    reference += tl.load(place + 2, mask=token < four, other=0).to(tl.int32) << 16
    return reference + (tl.load(place + 3, mask=token < four, other=0).to(tl.int32) << 24)


@triton.jit
def store_reference(start: tl.tensor, token: tl.tensor, width: tl.tensor, reference: tl.tensor) -> None:
    """Write one reference."""
    byte = tl.arange(0, 4)
    tl.store(start + token * width + byte, ((reference >> (8 * byte)) & 255).to(tl.uint8), mask=byte < width)
