"""Algorithm 1 of SpindleKV read plainly: the whole similarity matrix, one round at a time, no shortcuts.

The baseline of `kvbench.methods.spindlekv.ops.greedy_cover`, which must agree with it entry for entry, and of the
benchmark script, which says how much faster it is. The two share only the arithmetic of one similarity.
"""

import torch
from torch import Tensor

from kvbench.ops.directions import bound, directions


def plain_codebook(x: Tensor, theta: float) -> tuple[Tensor, Tensor]:
    """Entries [|C|] and references [N] of x [N, d], in O(N²) time a round and O(N²) memory."""
    n = len(x)
    units = directions(x)
    graph = adjacent(units, units, theta)  # equation 9
    names = units.unique(dim=0, return_inverse=True)[1] if n else torch.empty(0)
    graph |= names[:, None] == names  # equal directions, and so the diagonal, are adjacent whatever rounding says
    entries, references = [], torch.full((n,), -1)
    while graph.any():
        degree = graph.sum(dim=1, dtype=torch.int32)  # equation 10
        pick = int((degree == degree.max()).nonzero()[0, 0])  # equation 11; ties go to the lowest index
        neighbours = graph[pick].clone()
        references[neighbours] = len(entries)  # equation 12
        entries.append(pick)
        graph &= ~neighbours[:, None] & ~neighbours[None, :]  # equation 13
    return torch.tensor(entries, dtype=torch.long), references


def adjacent(rows: Tensor, columns: Tensor, theta: float) -> Tensor:
    """Equation 9 for a tile: bool [t, s], cosine of directions rows [t, d] and columns [s, d] above theta.

    The caller sets the diagonal: equal vectors are adjacent whatever rounding made of their cosine.
    """
    return rows @ columns.T > bound(theta)
