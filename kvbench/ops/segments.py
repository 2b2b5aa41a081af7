"""Where the segments of packed keys and values lie, as operators read it (`kvbench.ops.packed_attention`)."""

from typing import NamedTuple

from torch import Tensor

from kvbench.ops.signature import Varying


class Segments(NamedTuple):
    """Segment s holds the rows from starts[s] on, for query heads heads[s] to heads[s + 1] - 1 of all rows' heads."""

    starts: Tensor  # int32 [segments + 1], ascending
    lengths: Tensor  # int32 [segments]
    heads: Tensor  # int32 [segments + 1], ascending
    group: Varying  # the most query heads of a segment, known to the host
    longest: Varying  # no length is larger, known to the host


class Visible(NamedTuple):
    """Of the first masked[s] tokens of segment s, query head i of its group sees token j where bit j of row i of
    bits[bit_starts[s]:] as [group, ceil(masked[s] / 8)] is set, the lowest bit first; it sees all later tokens. Without
    bits every head sees all."""

    masked: Tensor | None = None  # int32 [segments]
    bit_starts: Tensor | None = None  # int32 [segments]
    bits: Tensor | None = None  # uint8
