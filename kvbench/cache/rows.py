"""Layer caches of rows: of one sequence, or of as many as a batch has joined."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Self

from torch import Tensor

from kvbench.cache.base import LayerCache, Row


class RowsLayer(LayerCache):
    """A layer cache with a row for each of one or several sequences: one call appends, one call attends for all rows.

    With room for further tokens the host takes no part in appending a token: device operations can be repeated.

    rows        the row of each sequence. It may be empty in the cache of one sequence, which counts itself.
    room        how many further tokens of each row fit in its tensors.
    moves       how often the tensors that a step reads, or its inputs from the host, have been replaced.
    fuses       whether torch.compile makes one graph of `write` and `attend` that does not rebuild tables.
    takes_back  whether the last tokens of a row can be removed without a trace.
    """

    rows: Sequence[Row] = ()
    room: int = 0
    moves: int = 0
    fuses: bool = True
    takes_back: bool = False

    def joins(self, other: "RowsLayer") -> bool:
        """Whether `joined` can append the rows of `other`."""
        return False

    def joined(self, others: Sequence[Self], room: int) -> "RowsLayer":
        """One cache of the rows of this cache and of `others`, which must not be used afterwards; itself if there are
        no others.

        room: tokens to make room for, unless room changes the count of bytes.
        """
        self.make_room(room)
        return self

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these rows and drop the others."""
        raise NotImplementedError(f"{type(self).__name__} has one row")

    def make_room(self, tokens: int) -> None:
        """Make room for these tokens, unless room changes the count of bytes."""
        return None

    @property
    @abstractmethod
    def ahead(self) -> int:
        """How many tokens can be appended one by one by repeating the device operations of the last one-token `append`
        on the same tensors, each time after `make_way`: all that differs from token to token is on the device.

        After a token that Python must append, the operations can be repeated again unless the tensors have moved.
        """

    def make_way(self) -> None:
        """Prepare for the next token, whether Python or repeated operations append it."""
        return None

    @abstractmethod
    def write(self, keys: Tensor, values: Tensor) -> None:
        """The device's part of `append` for one token, if `ahead` is not 0. `advance` is the host's part."""

    @abstractmethod
    def advance(self, tokens: int) -> None:
        """Count tokens, at most `ahead`, that repeated operations appended; a negative number removes tokens."""

    def take_back(self, row: int, tokens: int) -> None:
        """Remove the last tokens of a row, which were appended one by one."""
        raise NotImplementedError(f"{type(self).__name__} cannot remove tokens")
