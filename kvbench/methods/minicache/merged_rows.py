"""The rows of one of two layers that share directions."""

from torch import Tensor

from kvbench.ops.bits import unpack_bits
from kvbench.ops.operator import operator


def _fake(directions: Tensor, magnitudes: Tensor, retained: Tensor, bits: Tensor) -> Tensor:
    heads, k, head_dim = retained.shape
    return retained.new_empty(heads, k + directions.shape[1], head_dim)


@operator(launches=1, fake=_fake)
def merged_rows(directions: Tensor, magnitudes: Tensor, retained: Tensor, bits: Tensor) -> Tensor:
    """Rows [heads, n, head_dim] in order: directions [heads, n - k, head_dim] times magnitudes [heads, n - k], and
    unchanged rows of `retained` [heads, k, head_dim] where `bits` [heads, ceil(n / 8)] has a bit set."""
    heads, k, head_dim = retained.shape
    n = k + directions.shape[1]
    unmerged = unpack_bits(bits, n)[..., None]  # [heads, n, 1]
    merged = directions.float() * magnitudes[..., None].float()
    rows = retained.new_empty(heads, n, head_dim)
    rows.masked_scatter_(~unmerged, merged.to(rows.dtype))
    return rows.masked_scatter_(unmerged, retained)
