"""The numbers behind packed codes of blocks, on a CPU."""

import numpy as np
import torch
from torch import Tensor

from kvbench.ops.compiled.loops import loop


def block_values(stored: Tensor, header: np.int64, bits: int, levels: Tensor, scale: Tensor, minimum: Tensor) -> Tensor:
    """See `kvbench.ops.block_values`."""
    width = (stored.shape[1] - header) * 8 // bits
    out = torch.empty(len(stored), width)
    arrays = (x.contiguous().numpy() for x in (stored, levels, scale, minimum, out))
    LOOPS[bits](np.int64(header), *arrays)
    return out


@loop
def bytes_(
    header: np.int64, stored: np.ndarray, levels: np.ndarray, scale: np.ndarray, minimum: np.ndarray, out: np.ndarray,
) -> None:  # fmt: skip
    for i in range(len(out)):
        for j in range(out.shape[1]):
            out[i, j] = levels[stored[i, header + j]] * scale[i] + minimum[i]


@loop
def nibbles(
    header: np.int64, stored: np.ndarray, levels: np.ndarray, scale: np.ndarray, minimum: np.ndarray, out: np.ndarray,
) -> None:  # fmt: skip
    half = out.shape[1] // 2
    for i in range(len(out)):
        for j in range(half):
            byte = stored[i, header + j]
            out[i, j] = levels[byte & 15] * scale[i] + minimum[i]
            out[i, half + j] = levels[byte >> 4] * scale[i] + minimum[i]


@loop
def fives(
    header: np.int64, stored: np.ndarray, levels: np.ndarray, scale: np.ndarray, minimum: np.ndarray, out: np.ndarray,
) -> None:  # fmt: skip
    half = out.shape[1] // 2
    for i in range(len(out)):
        for j in range(half):
            byte = stored[i, header + 4 + j]
            low = stored[i, header + j // 8] >> (j % 8) & 1
            high = stored[i, header + (half + j) // 8] >> (j % 8) & 1
            out[i, j] = levels[byte & 15 | low << 4] * scale[i] + minimum[i]
            out[i, half + j] = levels[byte >> 4 | high << 4] * scale[i] + minimum[i]


@loop
def sixes(
    header: np.int64, stored: np.ndarray, levels: np.ndarray, scale: np.ndarray, minimum: np.ndarray, out: np.ndarray,
) -> None:  # fmt: skip
    for i in range(len(out)):
        for j in range(out.shape[1] // 4):
            at = header + 3 * j
            word = np.int32(stored[i, at]) | np.int32(stored[i, at + 1]) << 8 | np.int32(stored[i, at + 2]) << 16
            for k in range(4):
                out[i, 4 * j + k] = levels[word >> (6 * k) & 63] * scale[i] + minimum[i]


LOOPS = {8: bytes_, 4: nibbles, 5: fives, 6: sixes}
