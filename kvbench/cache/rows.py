"""Layer caches of rows: of one sequence, or of as many as a batch has joined."""

from abc import abstractmethod
from collections.abc import Sequence
from typing import Self

from torch import Tensor

from kvbench.cache.base import LayerCache, Row


class RowsLayer(LayerCache):
    """A layer cache with a row for each sequence, one or several, so that one call appends and attends for all of them.

    Where there is room for further tokens, the host has no part in appending one: device operations can be repeated.

    rows        what each sequence holds. It may be empty in the cache of one sequence, which counts itself.
    room        further tokens of each row that fit in its tensors.
    moves       how often the tensors that a step reads, or its inputs from the host, have been replaced.
    fuses       whether torch.compile makes one graph of `write` and `attend`, without making tables anew.
    takes_back  whether the last tokens of a row can be taken back, as if they had never come.
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
        """One cache of the rows of this cache and of `others`, which are no longer used; this one if there are none.

        room: tokens to make room for, where that does not change how bytes are counted.
        """
        self.make_room(room)
        return self

    def keep(self, rows: Sequence[int]) -> None:
        """Keep these rows and drop the others."""
        raise NotImplementedError(f"{type(self).__name__} has one row")

    def make_room(self, tokens: int) -> None:
        """Make room for these tokens, where that changes no count of bytes."""
        return None

    @property
    @abstractmethod
    def ahead(self) -> int:
        """Tokens that can be appended, one by one, by repeating the device operations of the last `append` of one token
        on the same tensors, each time after `make_way`: whatever else differs from token to token is on the device.

        After a token that Python must append, the operations can be repeated again unless the tensors have moved.
        """

    def make_way(self) -> None:
        """Prepare for the next token, whether Python or repeated operations append it."""
        return None

    @abstractmethod
    def write(self, keys: Tensor, values: Tensor) -> None:
        """The device's part of `append`, of one token that is `ahead`. `advance` is the host's."""

    @abstractmethod
    def advance(self, tokens: int) -> None:
        """Count tokens, at most `ahead`, that repeated operations appended; a negative number takes them back."""

    def take_back(self, row: int, tokens: int) -> None:
        """Take back the last tokens of a row, which were appended one by one."""
        raise NotImplementedError(f"{type(self).__name__} takes nothing back")
