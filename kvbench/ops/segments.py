"""The places of the segments of packed keys and values, as operators' arguments (`kvbench.ops.packed_attention`)."""

from typing import NamedTuple

from torch import Tensor

from kvbench.ops.signature import Varying


class Segments(NamedTuple):
    """Segment s has rows from starts[s] on, for query heads heads[s] to heads[s + 1] - 1 of all rows' heads."""

    starts: Tensor  # int32 [segments + 1], ascending
    lengths: Tensor  # int32 [segments]
    heads: Tensor  # int32 [segments + 1], ascending
    group: Varying  # the largest number of query heads of a segment, known to the host
    longest: Varying  # upper bound of the lengths, known to the host


class Visible(NamedTuple):
    """The tokens that each query head sees. bits[bit_starts[s]:] as [group, ceil(masked[s] / 8)] has a row for each
    query head of segment s; the head sees token j of the first masked[s] if bit j is set, the lowest bit first, and all
    later tokens. Without bits every head sees all tokens."""

    masked: Tensor | None = None  # int32 [segments]
    bit_starts: Tensor | None = None  # int32 [segments]
    bits: Tensor | None = None  # uint8
