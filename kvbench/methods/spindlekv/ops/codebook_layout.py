"""The places of the streams of a codebook cache in the packed tensors of a layer, as operators read them."""

from collections.abc import Sequence
from typing import NamedTuple

import torch
from torch import Tensor

from kvbench.ops.signature import Varying

WIDTHS = {1: torch.uint8, 2: torch.uint16, 4: torch.int32}


def smallest_integer(most: int) -> torch.dtype:
    """The narrowest integer type that holds 0 … most; above 16 bits it is signed."""
    return torch.uint8 if most < 2**8 else torch.uint16 if most < 2**16 else torch.int32


def reference_types(entries: Sequence[int], streams: int) -> list[torch.dtype]:
    """The narrowest type of each stream's references to its book; entries: room of each book."""
    return [smallest_integer(entries[stream * len(entries) // streams] - 1) for stream in range(streams)]


class Place(NamedTuple):
    """One stream: a KV head, or a query head if each query head has a codebook.

    Its coded tokens are `tokens` tokens of the prompt, then all decoded tokens. Fields have the layout tensor's order.
    """

    tokens: int
    start: int  # offset of its magnitudes, for keys and for values
    positions: int  # offset of its `tokens` positions; -1: 0 … tokens-1
    bits: int  # offset of its bits [query heads, ceil(tokens / 8)]; -1: all query heads see all tokens
    raw: int  # offset of the raw vectors of its KV head
    window: int  # how many raw vectors the KV head has
    # keys, then values: first row of the stream's book in the entries; offset and width of its references in bytes
    key_book: int
    key_references: int
    key_width: int
    value_book: int
    value_references: int
    value_width: int


# Indices of fields, for kernels that read a row of the layout. Book, offset and width of a side are adjacent.
TOKENS, START, BITS, RAW, WINDOW, KEYS, VALUES = (
    Place._fields.index(name) for name in ("tokens", "start", "bits", "raw", "window", "key_book", "value_book")
)


class Coded(NamedTuple):
    """The stored keys or values of all streams."""

    entries: Tensor  # [rows, head_dim]; keys are in paired order (see `rope_table`)
    references: Tensor  # uint8 [bytes]
    magnitudes: Tensor | None  # [tokens]; None: entries are whole vectors


class Books(NamedTuple):
    """The codebooks that keys or values are coded with."""

    sizes: Tensor  # int64 [books]: the entries of each book, which has room for one more entry per stream
    most: Varying  # upper bound of the entries of a book
    bound: float  # the cosine above which an entry stands for a vector


class Vectors(NamedTuple):
    """Uncompressed keys and values, [rows, head_dim] each."""

    keys: Tensor
    values: Tensor


class Seen(NamedTuple):
    """The coded tokens of the prompt, and the query heads that see them."""

    positions: Tensor | None  # in the narrowest integer type
    bits: Tensor | None  # uint8


class Rotation(NamedTuple):
    """How keys are rotated to a token's position: see `rope_table`."""

    order: Tensor  # int64 [head_dim], channels in paired order
    turns: Tensor  # float32 [positions, pairs, 2]


class Layout(NamedTuple):
    """The places of streams, and the numbers of prompt and decoded tokens."""

    places: Tensor  # int64 [streams, fields of `Place`]
    prompt: Varying  # number of prompt tokens
    decoded: Tensor  # int32 [streams], all equal: number of decoded tokens


def to_tensor(places: list[Place], device: torch.device) -> Tensor:
    """The layout int64 [streams, fields] that the operators take."""
    return torch.tensor(places, dtype=torch.long).to(device, non_blocking=True)


def to_places(layout: Tensor) -> list[Place]:
    """The inverse of `to_tensor`."""
    return [Place(*row) for row in layout.tolist()]


def view_references(references: Tensor, offset: int, width: int, count: int) -> Tensor:
    """References [count] of one stream in a byte buffer, as integers of `width` bytes."""
    return references[offset : offset + width * count].view(WIDTHS[width])
