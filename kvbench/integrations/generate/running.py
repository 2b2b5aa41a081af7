"""What the running `generate` does, which it tells no cache and no hook: read from its stack frames."""

import sys
from collections.abc import Iterator
from types import FrameType

PREFILL, DECODING = "_prefill", "_sample"  # generate's functions: the second calls the first, and then every step


def chunk_of_prefill() -> int | None:
    """The prefill_chunk_size of the running `generate`; None without one."""
    for frame in _frames():
        if frame.f_code.co_name == PREFILL and "generation_config" in frame.f_locals:
            return getattr(frame.f_locals["generation_config"], "prefill_chunk_size", None)
    return None


def is_decoding() -> bool:
    """Whether `generate` has read its prompt."""
    names = (frame.f_code.co_name for frame in _frames())
    return next((name for name in names if name in (PREFILL, DECODING)), None) == DECODING


def _frames() -> Iterator[FrameType]:
    """The frames of the callers, innermost first."""
    frame: FrameType | None = sys._getframe(1)
    while frame is not None:
        yield frame
        frame = frame.f_back
