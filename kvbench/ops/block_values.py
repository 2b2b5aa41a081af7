"""The numbers of packed codes in blocks with a scale and a minimum each."""

from torch import Tensor

from kvbench.ops.block_packing import unpack
from kvbench.ops.operator import operator


def _fake(stored: Tensor, header: int, bits: int, levels: Tensor, scale: Tensor, minimum: Tensor) -> Tensor:
    return scale.new_empty(len(stored), (stored.shape[1] - header) * 8 // bits)


@operator(launches=1, fake=_fake)
def block_values(stored: Tensor, header: int, bits: int, levels: Tensor, scale: Tensor, minimum: Tensor) -> Tensor:
    """scale · levels[code] + minimum for the codes of n blocks: float32 [n, block].

    stored: uint8 [n, block_bytes], `header` bytes and the codes of a block in the layout of
    `kvbench.ops.block_packing`; levels [2^bits], scale and minimum [n]: float32.
    """
    codes = unpack(stored[:, header:], bits)
    numbers = levels.index_select(0, codes.flatten()).view(codes.shape)
    return numbers.mul_(scale[:, None]).add_(minimum[:, None])
